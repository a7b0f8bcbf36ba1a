"""A matrix once read: plain frozen values, nothing symbolic but the lengths."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kaudit.cell import DType, Feature, Heads, KvDType, Layout, Mask, Phase, Rope
from kaudit.matrix.lengths import ShapeSpec
from kaudit.matrix.rules import Expectation, Forbid

Cover = Literal["full", 2, 3]
KvChoice = Literal[KvDType, "same"]


class ShapeChoice(Struct, frozen=True):
    """A shape and the phases that list it."""

    spec: ShapeSpec
    phases: tuple[Phase, ...]

    def __str__(self) -> str:
        return str(self.spec)


class Axes(Struct, frozen=True):
    """The values of each axis, in the file's order, each once. The fields stand in the order of a cell's."""

    phase: tuple[Phase, ...]
    dtype: tuple[DType, ...]
    kv_dtype: tuple[KvChoice, ...]
    heads: tuple[Heads, ...]
    kv_layout: tuple[Layout, ...]
    mask: tuple[Mask, ...]
    rope: tuple[Rope, ...]
    features: tuple[tuple[Feature, ...], ...]
    shape: tuple[ShapeChoice, ...]


class Block(Struct, frozen=True):
    """Axes, and how much of their product to run."""

    axes: Axes
    cover: Cover


class Matrix(Struct, frozen=True):
    """A matrix file: its own axes, and blocks with axes of theirs under the same rules.

    `max_len` is what `max` stands for in a length, in tokens. `numerics`: a sweep checks results, unless told not to.
    """

    name: str
    axes: Axes
    forbid: tuple[Forbid, ...]
    expect: tuple[Expectation, ...]
    cover: Cover
    max_len: int
    also: tuple[Block, ...] = ()
    numerics: bool = False

    def blocks(self) -> "tuple[Matrix, ...]":
        """Each block as a matrix of its own."""
        return tuple(
            replace(self, axes=block.axes, cover=block.cover, also=())
            for block in (Block(self.axes, self.cover), *self.also)
        )
