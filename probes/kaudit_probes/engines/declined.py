"""Refusals that an engine throws as the exceptions that a failure has, too: told apart by their words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

FLASH_ATTENTION = re.compile(
    r"\A[^\n]*(FlashAttention|flash attention build|only supports?|not support|must divide|multiple of|divisible)[^\n]*"
)
"""How FlashAttention's checks (TORCH_CHECK, no exception type of their own) say what they do not take, on the line
before a trace of the C++ stack. What they say of devices, dtypes and shapes that do not fit is a caller's mistake.
"""

_FAILED = re.compile(r"CUDA (driver )?error|Ninja build failed")


class Declined(Exception):
    """The engine said no; the text is its own."""


@contextmanager
def declining(words: re.Pattern[str], kinds: tuple[type[Exception], ...] = (RuntimeError,)) -> Iterator[None]:
    """An error of these kinds in which `words` are found says no: what they match is said. Any other goes its way.

    So does an error of the device or of a compiler, whatever its words: "CUDA error: operation not supported" and
    "unsupported GNU version" refuse nothing.
    """
    try:
        yield
    except kinds as error:
        said = words.search(str(error))
        if said is None or _FAILED.match(str(error)):
            raise
        raise Declined(said[0]) from error
