"""The ids of many rows as a matrix of numbers, and the literals (`axis=value`, `axis>=value`) over it."""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kaudit.cell import Cell

Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]
Value = str | int

DERIVED = (
    "v_head_dim",
    "q_heads",
    "kv_heads",
)  # where one of them says what head_dim says, head_dim is the one to name


class Literal(Struct, frozen=True):
    """One comparison. `low` and `high`: the half-open range that it admits, in places of the axis's sorted values."""

    text: str
    axis: str
    low: int
    high: int
    column: int
    """of the grid: the token of the id that decides the axis"""

    @property
    def exact(self) -> bool:
        return self.high - self.low == 1

    def narrows(self, other: "Literal") -> bool:
        """Whether it says the same or more. Two of one axis that do not, make a range or exclude each other."""
        return self.axis == other.axis and self.low >= other.low and self.high <= other.high


class Grid(Struct, frozen=True):
    """Rows by tokens of their ids. `codes` is [columns, rows]; every token of every column has a number of its own.

    Axes that hold one value throughout have no literal. `literals` stand in order of preference among those that say
    the same of these rows: equality first, then the more basic axis. `admits` is [literals, tokens].
    """

    codes: Numbers
    literals: tuple[Literal, ...]
    admits: Mask

    @classmethod
    def of(cls, keys: Sequence[tuple[str, str]]) -> Self:
        """Raises ValueError where a cell id is none."""
        ids = [(op, *cell.split("/")) for cell, op in keys]
        columns: list[Numbers] = []
        found: list[tuple[Literal, Mask, int]] = []
        tokens = 0
        for position, column in enumerate(zip(*ids, strict=True)):
            distinct = {token: number for number, token in enumerate(dict.fromkeys(column))}
            if len(distinct) > 1:
                # An axis is a function of one token. So only the distinct tokens are parsed, a few hundred of them, in
                # copies of the first row's id; what varies among the copies is what the token decides.
                axes = [_axes((*ids[0][:position], token, *ids[0][position + 1 :])) for token in distinct]
                found += [(literal, mask, tokens) for literal, mask in _literals(axes, len(columns))]
                columns.append(np.fromiter(map(distinct.__getitem__, column), np.intp, len(column)) + tokens)
                tokens += len(distinct)
        found.sort(key=lambda entry: (not entry[0].exact, entry[0].axis in DERIVED))
        admits = np.zeros((len(found), tokens), np.bool_)
        for number, (_, mask, start) in enumerate(found):
            admits[number, start : start + mask.size] = mask
        codes = np.stack(columns) if columns else np.empty((0, len(keys)), np.intp)
        return cls(codes, tuple(literal for literal, *_ in found), admits)

    def counts(self, rows: Numbers) -> Numbers:
        """How many of the rows, given by number, each literal admits: [literals]."""
        # A histogram of tokens first: there are a few hundred tokens, but rows times literals is tens of millions.
        histogram = np.bincount(self.codes[:, rows].ravel(), minlength=self.admits.shape[1])
        counts: Numbers = self.admits @ histogram
        return counts

    def admitted(self, literal: int, rows: Numbers) -> Numbers:
        """Those of the rows that one literal admits."""
        tokens = self.codes[self.literals[literal].column, rows]
        admitted: Numbers = rows[self.admits[literal, tokens]]
        return admitted

    def narrowing(self, literals: tuple[int, ...]) -> Mask:
        """[literals]: those that narrow the axis of one of these further."""
        chosen = [self.literals[number] for number in literals]
        return np.array([any(literal.narrows(other) for other in chosen) for literal in self.literals], np.bool_)


def _axes(tokens: Sequence[str]) -> dict[str, Value]:
    """The axes of a row, its op the first."""
    op, *cell = tokens
    return {"op": op, **Cell.parse("/".join(cell)).axes()}


def _literals(axes: Sequence[dict[str, Value]], column: int) -> Iterator[tuple[Literal, Mask]]:
    """The literals over one column, each with the tokens that it admits; `axes` are those of each token."""
    for axis in axes[0]:
        values = sorted({of[axis] for of in axes}, key=lambda value: (isinstance(value, str), value))
        places = np.array([values.index(of[axis]) for of in axes])
        for low, high, text in _ranges(axis, values) if len(values) > 1 else ():
            yield Literal(text, axis, low, high, column), (places >= low) & (places < high)


def _ranges(axis: str, values: Sequence[Value]) -> Iterator[tuple[int, int, str]]:
    for place, value in enumerate(values):
        yield place, place + 1, f"{axis}={value}"
        if isinstance(value, int):
            if 0 < place < len(values) - 1:
                yield place, len(values), f"{axis}>={value}"
            if place > 1:
                yield 0, place, f"{axis}<{value}"
