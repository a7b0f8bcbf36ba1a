"""From the kernels of one op, and what the engine says of it, to its Ran: the kernels decide which path it was."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from kaudit.cell import Cell
from kaudit.observation import GraphMode, Kernel, Ran, Reason, Rejection, Said
from kaudit_probes.engines import Path

Rejections = Mapping[str, tuple[Rejection, ...]]

RAN_ALL_THE_SAME = Said("kaudit: its kernels ran all the same")
"""Behind reasons against the path that ran: whoever gave them, the engine or kaudit's mirror of it, was wrong."""


@dataclass(frozen=True)
class Words:
    """What an engine says of one cell, per op: hints, to be held against the kernels.

    `ungraphed`: of the whole cell, why it made no CUDA graph. `unasked`: why it could not be asked, where it could not.
    """

    claimed: Mapping[str, str]
    announced: Rejections
    asked: Rejections
    ungraphed: tuple[Reason, ...] = ()
    unasked: str = ""


def ran(cell: Cell, op: str, kernels: tuple[Kernel, ...], paths: Sequence[Path], words: Words) -> Ran:
    shown = path_shown(
        [kernel.name for kernel in kernels],
        paths,
        lambda path: has_roles(path, kernels) and (path.fits is None or path.fits(cell, kernels)),
    )
    asked = _unasked(paths, shown, words.unasked) if words.unasked else words.asked.get(op, ())
    return Ran(
        path=shown,
        kernels=kernels,
        claimed=words.claimed.get(op),
        rejections=remarked(merged(words.announced.get(op, ()), asked), shown),
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
    own = (*found.shows, *found.also)
    rest = [name for name in names if not any(_matches(expression, name) for expression in own)]
    return None if any(_matches(expression, name) for expression in foreign for name in rest) else found.name


def _shown(path: Path, names: Sequence[str]) -> bool:
    return all(any(_matches(expression, name) for name in names) for expression in path.shows)


@lru_cache(maxsize=1 << 14)
def _matches(expression: str, name: str) -> bool:
    """A sweep sees the same few hundred names in every cell."""
    return re.search(expression, name) is not None


def _unasked(paths: Sequence[Path], shown: str | None, why: str) -> tuple[Rejection, ...]:
    """That nothing is known of the paths before the one that ran: an engine that could not be asked was not silent."""
    listed = [path.name for path in paths]
    faster = listed[: listed.index(shown)] if shown else listed
    return tuple(Rejection(path, "asked", (Said(f"kaudit: it could not be asked: {why}"),)) for path in faster)


def merged(announced: Sequence[Rejection], asked: Sequence[Rejection]) -> tuple[Rejection, ...]:
    """What was announced, then what was asked of paths that the announcements leave out."""
    known = {rejection.path for rejection in announced}
    return (*announced, *(rejection for rejection in asked if rejection.path not in known))


def remarked(rejections: Sequence[Rejection], shown: str | None) -> tuple[Rejection, ...]:
    """The rejections; one of the very path that the kernels show is no longer the last word on it."""
    return tuple(replace(no, reasons=(*no.reasons, RAN_ALL_THE_SAME)) if no.path == shown else no for no in rejections)


def graph_mode(kernels: Sequence[Kernel]) -> GraphMode:
    match {kernel.graph for kernel in kernels}:
        case modes if modes == {True}:
            return "full"
        case modes if True in modes:
            return "partial"
    return "eager"
