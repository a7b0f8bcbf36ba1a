"""From the kernels of one op, and what the engine says of it, to its Ran: the kernels decide which path it was."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kaudit.cell import Cell
from kaudit.observation import GraphMode, Kernel, Ran, Rejection
from kaudit_probes.engines import Path

Rejections = Mapping[str, tuple[Rejection, ...]]


@dataclass(frozen=True)
class Words:
    """What an engine says of one cell, per op: hints, to be held against the kernels."""

    claimed: Mapping[str, str]
    announced: Rejections
    asked: Rejections


def ran(cell: Cell, op: str, kernels: tuple[Kernel, ...], paths: Sequence[Path], words: Words) -> Ran:
    return Ran(
        path=path_shown([kernel.name for kernel in kernels], paths),
        kernels=kernels,
        claimed=words.claimed.get(op),
        rejections=merged(words.announced.get(op, ()), words.asked.get(op, ())),
        graph_asked="full" if "cuda_graph" in cell.features else "eager",
        graph_got=graph_mode(kernels),
    )


def path_shown(names: Sequence[str], paths: Sequence[Path]) -> str | None:
    """The fastest path of which every expression matches some kernel name.

    If none does: the path that shows nothing of its own, provided that kernels were seen and that none of them matches
    an expression of another path (half of a fast path is not the slow one). Else None: the kernels match no path.
    """
    if not names:
        return None
    expressions = {path.name: [re.compile(shown) for shown in path.shows] for path in paths}
    for name, patterns in expressions.items():
        if patterns and all(any(pattern.search(kernel) for kernel in names) for pattern in patterns):
            return name
    marks = [pattern for patterns in expressions.values() for pattern in patterns]
    if any(pattern.search(kernel) for pattern in marks for kernel in names):
        return None
    return next((name for name, patterns in expressions.items() if not patterns), None)


def merged(announced: Sequence[Rejection], asked: Sequence[Rejection]) -> tuple[Rejection, ...]:
    """What was announced, then what was asked of paths that the announcements leave out."""
    known = {rejection.path for rejection in announced}
    return (*announced, *(rejection for rejection in asked if rejection.path not in known))


def graph_mode(kernels: Sequence[Kernel]) -> GraphMode:
    match {kernel.graph for kernel in kernels}:
        case modes if modes == {True}:
            return "full"
        case modes if True in modes:
            return "partial"
    return "eager"
