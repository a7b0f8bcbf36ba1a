"""A matrix to the cells that a sweep runs, with an account of every combination that it does not."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kaudit.applicable import inapplicable
from kaudit.cell import Cell
from kaudit.errors import UserError, told_in
from kaudit.globs import glob
from kaudit.ids import digest
from kaudit.matrix.cover import cover
from kaudit.matrix.model import Matrix
from kaudit.matrix.space import AXES, Space, cell_of, combinations, space_of

MAX_CELLS = 1_000_000


class Uncovered(Struct, frozen=True):
    """An axis value that no cell has."""

    axis: str
    value: str
    why: str


class Plan(Struct, frozen=True):
    """What a matrix expands to. Cells, run or skipped, stand once and sorted by id.

    `product` counts the combinations listed; `forbidden` how many of them each rule took, the first that holds taking
    them; `unresolved` how many had a symbolic length without a number, by reason. With `cover: full` they, the cells
    and the skipped ones add up to the product, save for combinations that spell the same cell. With `cover: 2` or `3`
    unresolved and inapplicable combinations are left out from the start, so both are empty.
    """

    name: str
    cells: tuple[Cell, ...]
    skipped: tuple[tuple[Cell, str], ...]
    unresolved: tuple[tuple[str, int], ...]
    forbidden: tuple[tuple[str, int], ...]
    uncovered: tuple[Uncovered, ...]
    product: int

    @property
    def digest(self) -> str:
        """Over the ids of cells and skipped ones: equal digests, comparable tables."""
        return digest([*(cell.id for cell in self.cells), *(cell.id for cell, _ in self.skipped)])

    @told_in("docs/matrix.md")
    def only(self, pattern: str | None) -> "Plan":
        """The cells, run and skipped, whose id the glob matches. Raises UserError where it matches none to run."""
        if pattern is None:
            return self
        wanted = glob(pattern)
        cells = tuple(cell for cell in self.cells if wanted(cell.id))
        if not cells:
            raise UserError(
                f'--only: no cell of {self.name} matches "{pattern}"; write a glob over ids, as in "decode/*/paged16/*"'
            )
        return replace(self, cells=cells, skipped=tuple(skip for skip in self.skipped if wanted(skip[0].id)))


@told_in("docs/matrix.md")
def expand(matrix: Matrix, max_cells: int = MAX_CELLS) -> Plan:
    """The cells of all blocks of a matrix.

    Raises UserError where the full products have `max_cells` combinations or more, or a covering array more rows.
    """
    blocks = matrix.blocks()
    full = sum(combinations(block.axes) for block in blocks if block.cover == "full")
    if full >= max_cells:
        raise UserError(
            f"{matrix.name}: the full product has {full} combinations, the limit is {max_cells}; "
            "write cover: 2 or cover: 3, or raise --max-cells"
        )
    cells: dict[str, Cell] = {}
    skipped: dict[str, tuple[Cell, str]] = {}
    unresolved: Counter[str] = Counter()
    forbidden: Counter[int] = Counter()
    covered: set[tuple[str, str]] = set()
    uncovered: dict[tuple[str, str], Uncovered] = {}
    for block in blocks:
        space = space_of(block)
        has: set[tuple[int, int]] = set()  # axis, and index of the value
        for row in _rows(block, space, max_cells).tolist():
            cell = cell_of(_values(block, row), block.max_len)
            if isinstance(cell, str):
                unresolved[cell] += 1
            elif (why := inapplicable(cell)) is not None:
                skipped[cell.id] = cell, why
            else:
                cells[cell.id] = cell
                has.update(enumerate(row))
        forbidden.update(_taken(space, len(matrix.forbid)))
        for axis, name in enumerate(AXES):
            for index, value in enumerate(getattr(block.axes, name)):
                key = name, _text(value)
                if (axis, index) in has:
                    covered.add(key)
                elif key not in uncovered:
                    uncovered[key] = Uncovered(*key, _why(block, space, axis, index))
    return Plan(
        matrix.name,
        tuple(cells[key] for key in sorted(cells)),
        tuple(skipped[key] for key in sorted(skipped)),
        tuple(sorted(unresolved.items())),
        tuple((rule.because, forbidden[number]) for number, rule in enumerate(matrix.forbid)),
        tuple(missing for key, missing in uncovered.items() if key not in covered),
        sum(combinations(block.axes) for block in blocks),
    )


def _rows(block: Matrix, space: Space, most: int) -> NDArray[np.intp]:
    """The combinations to make cells of, as indices of values, (rows, axes)."""
    if block.cover == "full":
        return np.argwhere(space.allowed[np.ix_(*space.classes)])
    return cover(space.allowed & space.applicable, space.classes, block.cover, most)


def _text(value: object) -> str:
    return "+".join(value) or "plain" if isinstance(value, tuple) else str(value)


def _values(matrix: Matrix, row: Sequence[int]) -> list[Any]:
    return [getattr(matrix.axes, name)[index] for name, index in zip(AXES, row, strict=True)]


def _taken(space: Space, rules: int) -> dict[int, int]:
    """Combinations forbidden by each rule."""
    taken = {}
    sizes = [np.bincount(own) for own in space.classes]
    for number in range(rules):
        count = (space.listed & (space.rule == number)).astype(np.int64)
        for size in reversed(sizes):
            count = count @ size
        taken[number] = int(count)
    return taken


def _why(matrix: Matrix, space: Space, axis: int, index: int) -> str:
    """The rules that take all its combinations; else what is wrong with one that they leave, best one with lengths."""
    own = np.arange(space.listed.shape[axis]) == space.classes[axis][index]
    here = own.reshape([-1 if i == axis else 1 for i in range(len(AXES))])
    left = np.argwhere(space.allowed & here)
    if not len(left):
        rules = np.unique(space.rule[space.listed & here])
        return "forbidden: " + "; ".join(matrix.forbid[rule].because for rule in rules)
    first = [np.unique(own, return_index=True)[1] for own in space.classes]
    reason = ""
    for combination in left:
        row = [int(own[chosen]) for own, chosen in zip(first, combination, strict=True)]
        row[axis] = index
        cell = cell_of(_values(matrix, row), matrix.max_len)
        if isinstance(cell, Cell):
            return f"no combination applies; for one, {inapplicable(cell)}"
        reason = reason or cell
    return reason
