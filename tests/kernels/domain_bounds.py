"""Problems at those bounds of a kernel at which none of its rows stands: the most requests it takes, the widest token.

Combined with all the rest they would be too large, so each is one of the least rows, in which one number grows until
it meets the bound: which number that is, is found by trying. A new bound needs no line here, unless one
number alone cannot bring a cell there.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replaced

from domain import COMPILED_FOR
from domain_rules import Device, sensible
from msgspec.structs import replace

from kaudit.cell import Cell, Shape
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import Requirement
from kaudit_probes.engines.reference import problem_of

_DEVICE_AXES = ("sm", "sm_count")

_FEW_LOGITS = 32
"""Of ops that see none: of 65,535 requests a whole vocabulary would be 8 GB."""

_OF_HIDDEN = {"intermediate": 2, "gate_up_width": 4}
"""So many times the hidden state, whose factor is theirs as often."""

Grow = Callable[[Cell, int], Cell]
Example = tuple[Cell, Problem]

_GROWING: tuple[Grow, ...] = (
    lambda cell, n: replace(cell, heads=replace(cell.heads, q=n * cell.heads.kv)),
    lambda cell, n: replace(cell, heads=replace(cell.heads, dim=n, v_dim=n)),
    lambda cell, n: replace(cell, shape=replace(cell.shape, batch=n)),
    lambda cell, n: replace(cell, shape=replace(cell.shape, q_len=n, kv_len=max(n, cell.shape.kv_len))),
    lambda cell, n: replace(cell, shape=replace(cell.shape, kv_len=n)),
    lambda cell, n: replace(cell, layout=replace(cell.layout, page=n)) if cell.layout.page else cell,
)


def numbers(kernel: Kernel) -> Iterator[tuple[Requirement, int]]:
    """Each number that the kernel's `requires` name, but the device's."""
    for needed in kernel.requires:
        if needed.axis not in _DEVICE_AXES:
            yield from ((needed, bound) for bound in needed.bounds if isinstance(bound, int))


def stands_at(needed: Requirement, bound: int, problem: Problem) -> bool:
    """Whether one more, or one less, would not do. Of a factor an odd multiple: an even one is one of its double."""
    seen = getattr(problem, needed.axis)
    there = seen == bound
    if needed.needed.startswith("a multiple of"):
        there = seen % (2 * bound * _OF_HIDDEN.get(needed.axis, 1)) > 0
    beside = [getattr(problem, axis) for axis in needed.beside]
    return there and any(needed.against(seen + off, *beside) for off in (-1, 1))


def at_bounds(op: str, kernel: Kernel, rows: Sequence[Cell], device: Device) -> list[Example]:
    """For each such bound, and each dtype, one."""
    made = []
    for needed, bound in numbers(kernel):
        if any(stands_at(needed, bound, problem_of(row, *device)) for row in rows):
            continue
        for dtype in dict.fromkeys(row.dtype for row in rows):
            like = sorted((row for row in rows if row.dtype == dtype), key=_cost)
            # A row of logits is compiled for half a minute with each of its features, as long as they can be.
            simple = [_short(row) for row in like if len(set(COMPILED_FOR.get(op, ())).intersection(row.features)) < 2]
            grown = (_grown(row, needed, bound, device) for row in simple)
            made += [each for each in grown if each and sensible(kernel, each[0], device)][:1]
    return made


def _cost(row: Cell) -> tuple[bool, bool, int]:
    """Before all, whether a mask, or pages, are to be made for each request."""
    return row.mask.kind in ("tree", "custom"), row.layout.kind == "paged", row.heads.q * row.heads.dim


def _short(row: Cell) -> Cell:
    """The row with three requests of few keys, of different lengths if they need not share a page."""
    shared = "prefix_share" in row.features
    q_len = 2 if row.mask.kind == "tree" else 1
    return replace(row, shape=Shape(3, q_len, 40 + 2 * row.layout.page * shared, skew=not shared))


def _grown(row: Cell, needed: Requirement, bound: int, device: Device) -> Example | None:
    """The row, one number of which is such that it stands at the bound. None: no number brings it there alone."""
    if needed.axis == "vocabulary":  # which a cell does not say
        return row, replaced(problem_of(row, *device), vocabulary=bound)
    for grow in _GROWING:

        def seen(n: int, grow: Grow = grow) -> int:
            return int(getattr(problem_of(grow(row, n), *device), needed.axis))

        cell = grow(row, 1 + bisect_left(range(1, bound), bound, key=seen))
        problem = problem_of(cell, *device)
        if stands_at(needed, bound, problem):
            return cell, replaced(problem, vocabulary=_FEW_LOGITS)
    return None
