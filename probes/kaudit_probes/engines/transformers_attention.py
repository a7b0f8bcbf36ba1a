"""The attention functions of transformers, which its models look up by the name of an implementation at each call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def listed(implementation: str) -> Callable[..., Any] | None:
    """The function in transformers' table. The eager function of a model stands in the module of its class instead."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    function: Callable[..., Any] | None = ALL_ATTENTION_FUNCTIONS.get(implementation)
    return function


@contextmanager
def in_place_of(implementation: str, attention: Callable[..., Any]) -> Iterator[None]:
    """`attention` is what every model calls under that name."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    real = listed(implementation)
    ALL_ATTENTION_FUNCTIONS[implementation] = attention
    try:
        yield
    finally:
        if real is None:
            del ALL_ATTENTION_FUNCTIONS[implementation]
        else:
            ALL_ATTENTION_FUNCTIONS[implementation] = real
