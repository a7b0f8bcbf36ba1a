"""Features without effect: the engine's result is the textbook's with one feature off, and not the textbook's with it.

Only a result that is wrong is asked: one that is right has every feature, or they change nothing that can be seen.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from kaudit.cell import Mask
from kaudit_probes.figures import figures
from kaudit_probes.oracle import Attention

Without = tuple[str, Callable[[], Tensor]]
"""A feature, and what comes out where it is off."""


def ignored(without: Iterable[Without], got: Tensor, allowed: float) -> str:
    """The first feature without which all of `got` is right; empty if there is none. `allowed`: the tolerance."""
    for feature, textbook in without:
        numbers = figures(got, textbook(), allowed)
        if not numbers.nonfinite and not numbers.unwritten and (numbers.error or 0.0) <= allowed:
            return feature
    return ""


def each_off(attention: Attention) -> Iterator[Without]:
    """Every feature that the attention has, off: what it says and others do not."""
    rules = attention.rules

    def off(**changes: Any) -> Callable[[], Tensor]:
        return lambda: replace(attention, rules=replace(rules, **changes)).compute()[0]

    if rules.softcap is not None:
        yield "softcap", off(softcap=None)
    if rules.sinks is not None:
        yield "sinks", off(sinks=None)
    match rules.mask.kind:
        case "window":
            yield "window", off(mask=Mask("causal"))
        case "custom" | "tree" as kind:
            yield f"{kind} mask", off(mask=Mask("causal"))
            yield f"{kind} mask", off(mask=Mask("none"))
        case "causal":
            yield "causal mask", off(mask=Mask("none"))
    if rules.k_scale is not None:
        yield "scales of K and V", off(k_scale=None, v_scale=None)
        yield "scale of K", off(k_scale=None)
        yield "scale of V", off(v_scale=None)
