"""From the kernels of one op, and what the engine says of it, to its Ran: the kernels decide which path it was."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kaudit.cell import Cell
from kaudit.observation import GraphMode, Kernel, Ran, Reason, Rejection
from kaudit_probes.engines import Path

Rejections = Mapping[str, tuple[Rejection, ...]]

NOTHING = r"(?!)"
"""Matches no name."""


@dataclass(frozen=True)
class Words:
    """What an engine says of one cell, per op: hints, to be held against the kernels.

    `ungraphed`: of the whole cell, why it made no CUDA graph.
    """

    claimed: Mapping[str, str]
    announced: Rejections
    asked: Rejections
    ungraphed: tuple[Reason, ...] = ()


def ran(cell: Cell, op: str, kernels: tuple[Kernel, ...], paths: Sequence[Path], words: Words) -> Ran:
    return Ran(
        path=path_shown(
            [kernel.name for kernel in kernels],
            paths,
            lambda path: has_roles(path, kernels) and (path.fits is None or path.fits(cell, kernels)),
        ),
        kernels=kernels,
        claimed=words.claimed.get(op),
        rejections=merged(words.announced.get(op, ()), words.asked.get(op, ())),
        graph_asked="full" if "cuda_graph" in cell.features else "eager",
        graph_got=graph_mode(kernels),
        ungraphed=words.ungraphed,
    )


def has_roles(path: Path, kernels: Sequence[Kernel]) -> bool:
    return path.roles <= {kernel.role for kernel in kernels}


def path_shown(
    names: Sequence[str], paths: Sequence[Path], fits: Callable[[Path], bool] = lambda _: True
) -> str | None:
    """The fastest path of which every expression matches some kernel name, and which `fits`; or the path that shows
    nothing of its own and `fits`, where no other one does and kernels were seen.

    None, no path, if a kernel that is not of that path matches an expression of another: half of the work on a fast
    path is not that path, nor is half of a fast path the slow one.
    """
    if not names:
        return None
    found = next((path for path in paths if path.shows and fits(path) and _shown(path, names)), None)
    if found is None:
        found = next((path for path in paths if not path.shows and fits(path)), None)
    if found is None:
        return None
    foreign = [expression for path in paths for expression in path.shows if path is not found]
    own = "|".join(f"(?:{expression})" for expression in (*found.shows, *found.also)) or NOTHING
    rest = [name for name in names if not re.search(own, name)]
    return None if any(re.search(expression, name) for expression in foreign for name in rest) else found.name


def _shown(path: Path, names: Sequence[str]) -> bool:
    return all(any(re.search(expression, name) for name in names) for expression in path.shows)


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
