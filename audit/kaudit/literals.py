"""The ids of many rows as a matrix of numbers, and the literals (`axis=value`, `axis>=value`) over it."""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kaudit.ids import Ids, Value

Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]

DERIVED = (
    "v_head_dim",
    "q_heads",
    "kv_heads",
)  # where one of them says what head_dim says, head_dim is the one to name


class Grid(Struct, frozen=True):
    """Rows by what their ids say, and the literals over them, by number.

    `values` are those of all axes on end, sorted within an axis; axes that hold one value throughout are left out.
    `codes` is [axes, rows]: the place of the row's value among them. A literal admits the places from `low` to before
    `high`, all of one `axis`; these three are [literals]. They stand in order of preference among those that say the
    same of these rows: equality first, then the more basic axis.

    Nothing is held for each literal and row, or literal and value: an axis can have as many values as there are rows.
    """

    values: tuple[tuple[str, Value], ...]
    codes: Numbers
    axis: Numbers
    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, keys: Sequence[tuple[str, str]]) -> Self:
        """Raises ValueError where a cell id is none."""
        values: list[tuple[str, Value]] = []
        codes: list[Numbers] = []
        ranges: list[Numbers] = []
        for number, (name, of_axis, places) in enumerate(_axes(keys)):
            codes.append(places + len(values))
            found = np.array([(name in DERIVED, number, low, high) for low, high in _ranges(of_axis)], np.intp)
            found[:, 2:] += len(values)
            ranges.append(found)
            values += [(name, value) for value in of_axis]
        derived, axis, low, high = np.concatenate([np.empty((0, 4), np.intp), *ranges]).T
        order = np.lexsort((derived, high - low > 1))
        stacked = np.stack(codes) if codes else np.empty((0, len(keys)), np.intp)
        return cls(tuple(values), stacked, axis[order], low[order], high[order])

    def text(self, literal: int) -> str:
        low, high = int(self.low[literal]), int(self.high[literal])
        name, value = self.values[low]
        if high - low == 1:
            return f"{name}={value}"
        if low and self.values[low - 1][0] == name:
            return f"{name}>={value}"
        return f"{name}<{self.values[high][1]}"

    def counts(self, rows: Numbers) -> Numbers:
        """How many of the rows, given by number, each literal admits: [literals]."""
        histogram = np.bincount(self.codes[:, rows].ravel(), minlength=len(self.values))
        before = np.concatenate(([0], np.cumsum(histogram)))
        counts: Numbers = before[self.high] - before[self.low]
        return counts

    def admitted(self, literal: int, rows: Numbers) -> Numbers:
        """Those of the rows that one literal admits."""
        places = self.codes[self.axis[literal], rows]
        admitted: Numbers = rows[(places >= self.low[literal]) & (places < self.high[literal])]
        return admitted

    def narrowing(self, literals: tuple[int, ...]) -> Mask:
        """[literals]: those that say the same as one of these, or more. Two of one axis that do not make a range, or
        exclude each other."""
        found = np.zeros(self.low.size, np.bool_)
        for other in literals:
            found |= (self.low >= self.low[other]) & (self.high <= self.high[other])
        return found


def _axes(keys: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Sequence[Value], Numbers]]:
    """Each axis that varies, the op first: its name, its values in order, and for each row the place of its value."""
    ops = sorted({op for _, op in keys})
    if len(ops) > 1:
        yield "op", ops, _numbered(ops, [op for _, op in keys])
    cells = list(dict.fromkeys(cell for cell, _ in keys))
    ids, of_rows = Ids.of(cells), _numbered(cells, [cell for cell, _ in keys])
    for axis in ids.axes():
        yield axis.name, axis.values, np.array(axis.codes)[ids.columns[axis.place]][of_rows]


def _numbered(known: Sequence[str], texts: Sequence[str]) -> Numbers:
    numbers = {text: number for number, text in enumerate(known)}
    return np.fromiter(map(numbers.__getitem__, texts), np.intp, len(texts))


def _ranges(values: Sequence[Value]) -> Iterator[tuple[int, int]]:
    """The ranges of an axis that a literal can say: one value; of numbers also from one on, and up to before one."""
    most = len(values)
    yield from ((place, place + 1) for place in range(most))
    if all(isinstance(value, int) for value in values):
        yield from ((place, most) for place in range(1, most - 1))
        yield from ((0, place) for place in range(2, most))
