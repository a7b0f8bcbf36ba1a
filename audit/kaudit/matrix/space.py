"""The combinations of a matrix as tables: which are listed, forbidden by which rule, applicable.

Constraints look at a few axes each, and most values of an axis look alike to all of them. Values that no constraint
tells apart form a class; tables over classes stay small where the product of the values does not, and lose nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kaudit.applicable import LAWS, Law
from kaudit.cell import Cell, Heads, Layout, Mask, Rope
from kaudit.errors import UserError
from kaudit.matrix.lengths import Length, ShapeSpec
from kaudit.matrix.model import Axes, Matrix, ShapeChoice
from kaudit.matrix.rules import AXES_OF, When, fits, values

AXES = Axes.__struct_fields__

MOST_CLASSES = 1 << 24
"""Combinations of classes: tables of 16 MB. Only rules that tell nearly all values apart get there."""

MOST_LOOKS = 1_000_000
"""See looks(): some seconds. The release matrix takes 12,000."""

_LOOKS_A_BLOCK = 1_000
"""What a block costs however small it is."""

Table = NDArray[np.bool_]
"""Over the classes, one dimension per axis; length 1 where it does not depend on the axis."""

_NEUTRAL: dict[str, Any] = {
    "phase": "decode",
    "dtype": "bf16",
    "kv_dtype": "same",
    "heads": Heads(1, 1, 64, 64),
    "kv_layout": Layout("contiguous"),
    "mask": Mask("causal"),
    "rope": Rope("none"),
    "features": (),
    "shape": ShapeChoice(ShapeSpec(2, Length(1), Length(1)), ("decode",)),
}


_AXIS_OF = dict(zip(Cell.__struct_fields__, AXES, strict=True))
_LAW_AXES = {
    law: tuple(dict.fromkeys(axis for field in law.fields for axis in AXES_OF[_AXIS_OF[field]])) for law in LAWS
}
"""The file axes that each law depends on."""


class Space(Struct, frozen=True):
    """All combinations of a matrix, by class.

    `classes[axis]` is each value's class, (values,). `listed`: the shape is one of the phase's. `rule`: the first
    `forbid` rule that holds, else -1. `applicable`: the lengths resolve, and the cell does not contradict itself.
    """

    classes: tuple[NDArray[np.intp], ...]
    listed: Table
    rule: NDArray[np.intp]
    applicable: Table

    @property
    def allowed(self) -> Table:
        return self.listed & (self.rule < 0)


def cell_of(combination: Sequence[Any], max_len: int) -> Cell | str:
    """The cell of one value per axis, or why its symbolic lengths have no number."""
    phase, dtype, kv_dtype, heads, layout, mask, rope, features, shape = combination
    resolved = shape.spec.resolve(layout, mask, max_len)
    if isinstance(resolved, str):
        return resolved
    return Cell(phase, dtype, dtype if kv_dtype == "same" else kv_dtype, heads, layout, mask, rope, features, resolved)


def combinations(axes: Axes) -> int:
    """How many combinations the axes list, before any rule."""
    shapes = sum(len(shape.phases) for shape in axes.shape)
    return shapes * prod(len(getattr(axes, name)) for name in AXES if name not in ("phase", "shape"))


def looks(matrix: Matrix) -> int:
    """How often laws and rules look at a combination of the axes that they depend on, pattern by pattern."""
    whens = [*(rule.when for rule in matrix.forbid), *(rule.when for rule in matrix.expect)]
    count = 0
    for block in matrix.blocks():
        sizes = {name: len(getattr(block.axes, name)) for name in AXES}
        looked_at = [(axes, 1) for axes in (AXES_OF["shape"], *_LAW_AXES.values())]
        for when in whens:
            looked_at += [(AXES_OF[key], len(patterns)) for key, patterns in when.keys]
        count += _LOOKS_A_BLOCK + sum(times * prod(sizes[name] for name in axes) for axes, times in looked_at)
    return count


def space_of(matrix: Matrix) -> Space:
    """Raises UserError where the rules tell apart more than MOST_CLASSES combinations."""
    listed = _tabulate(matrix, ("phase", "shape"), lambda given: given[0] in given[-1].phases)
    rules = [
        [_tabulate(matrix, AXES_OF[key], _fitting(matrix, key, patterns)) for key, patterns in rule.when.keys]
        for rule in matrix.forbid
    ]
    applicable = list(_applicable(matrix))
    classes, first = _classes([listed, *applicable, *(table for rule in rules for table in rule)], matrix)
    sizes = tuple(len(own) for own in first)
    if prod(sizes) > MOST_CLASSES:
        raise UserError(f"{matrix.name}: rules tell {prod(sizes)} combinations apart; name fewer values in when:")

    def by_class(tables: Sequence[Table]) -> Table:
        """Where all of the tables hold."""
        shape = np.ones(sizes, np.bool_)
        for table in tables:
            shape &= table[np.ix_(*(own if n > 1 else [0] for own, n in zip(first, table.shape, strict=True)))]
        return shape

    rule = np.full(sizes, -1, np.intp)
    for number in reversed(range(len(rules))):
        rule[by_class(rules[number])] = number
    return Space(classes, by_class([listed]), rule, by_class(applicable))


def _applicable(matrix: Matrix) -> Iterator[Table]:
    yield _tabulate(matrix, AXES_OF["shape"], _holding(matrix, lambda _: True))
    for law, axes in _LAW_AXES.items():
        yield _tabulate(matrix, axes, _obeying(matrix, law))


def _obeying(matrix: Matrix, law: Law) -> Callable[[Sequence[Any]], bool]:
    return _holding(matrix, lambda cell: law.broken_by(cell) is None)


def _fitting(matrix: Matrix, key: str, patterns: tuple[str, ...]) -> Callable[[Sequence[Any]], bool]:
    return _holding(matrix, lambda cell: fits(cell, key, patterns))


def _holding(matrix: Matrix, holds: Callable[[Cell], bool]) -> Callable[[Sequence[Any]], bool]:
    """Of one value per axis: whether they make a cell for which it holds."""

    def held(given: Sequence[Any]) -> bool:
        cell = cell_of(given, matrix.max_len)
        return isinstance(cell, Cell) and holds(cell)

    return held


def _over(matrix: Matrix, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Every combination of the named axes, the others neutral."""
    return product(*(getattr(matrix.axes, name) if name in names else (_NEUTRAL[name],) for name in AXES))


def _tabulate(matrix: Matrix, names: Sequence[str], holds: Callable[[Sequence[Any]], bool]) -> Table:
    """Over the values, one dimension per axis, length 1 for axes not named."""
    shape = [len(getattr(matrix.axes, name)) if name in names else 1 for name in AXES]
    return np.fromiter((holds(given) for given in _over(matrix, names)), np.bool_, prod(shape)).reshape(shape)


def _classes(tables: Sequence[Table], matrix: Matrix) -> tuple[tuple[NDArray[np.intp], ...], list[NDArray[np.intp]]]:
    """Per axis: the class of each value, and the first value of each class."""
    classes, first = [], []
    for axis, name in enumerate(AXES):
        seen = [np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1) for table in tables if table.shape[axis] > 1]
        alike = np.concatenate(seen, axis=1) if seen else np.zeros((len(getattr(matrix.axes, name)), 1), np.bool_)
        _, own, inverse = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        classes.append(inverse.reshape(-1))
        first.append(own)
    return tuple(classes), first


def stale_patterns(matrix: Matrix, when: When) -> Iterator[tuple[str, str]]:
    """The keys of a rule with a pattern that fits no value of any block, each with a line to that effect."""
    for key, patterns in when.keys:
        listed = (given for block in matrix.blocks() for given in _over(block, AXES_OF[key]))
        cells = (cell_of(given, matrix.max_len) for given in listed)
        seen = dict.fromkeys(form for cell in cells if isinstance(cell, Cell) for form in values(cell, key))
        for pattern in patterns:
            if not any(fnmatchcase(form, pattern) for form in seen):
                yield key, f'{key} "{pattern}" fits no value of this matrix ({", ".join(seen)}); mend or remove it'
