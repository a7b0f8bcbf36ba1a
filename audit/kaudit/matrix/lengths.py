"""Shapes as a matrix file lists them: numbers of tokens, some only known once a cell's page and window are."""

import re
from typing import Any, Literal, Self

from msgspec import Struct

from kaudit.cell import Layout, Mask, Shape

Symbol = Literal["page", "window", "max", "kv_len"]

_LENGTH = re.compile(r"(?:(\d{1,9})\*)?(page|window|max|kv_len)([+-]\d{1,9})?", re.ASCII)


class Length(Struct, frozen=True):
    """`times` x `of` + `plus`, in tokens; a plain number is `plus` alone, `of` nothing."""

    plus: int = 0
    of: Symbol | None = None
    times: int = 1

    @classmethod
    def parse(cls, text: int | str) -> Self:
        """Read 128, `page`, `window+1` or `2*page-1`. Raises ValueError with one line."""
        if isinstance(text, int):
            if text < 1:
                raise ValueError(f"{text} tokens, needs at least 1")
            return cls(plus=text)
        found = _LENGTH.fullmatch(text)
        if found is None:
            raise ValueError(
                f'"{text}" is not a number of tokens, nor page, window or max as in page-1, window+1, 2*page'
            )
        times, plus = found[1], found[3]
        of: Any = found[2]  # one of Symbol, says the pattern
        return cls(int(plus or 0), of, int(times or 1))

    def __str__(self) -> str:
        if self.of is None:
            return str(self.plus)
        return (f"{self.times}*" if self.times != 1 else "") + self.of + (f"{self.plus:+}" if self.plus else "")


class ShapeSpec(Struct, frozen=True):
    """A shape before its cell is known. `q_len` may be given in terms of `kv_len`, never the other way."""

    batch: int
    q_len: Length
    kv_len: Length
    skew: bool = False

    @classmethod
    def of(cls, shape: Shape) -> Self:
        return cls(shape.batch, Length(shape.q_len), Length(shape.kv_len), shape.skew)

    def resolve(self, layout: Layout, mask: Mask, max_len: int) -> Shape | str:
        """The shape in tokens, or why this layout and mask give it none."""
        known: dict[Symbol, int] = {"max": max_len}
        if layout.kind == "paged":
            known["page"] = layout.page
        if mask.kind == "window":
            known["window"] = mask.window
        lengths = []
        for name, length in (("kv_len", self.kv_len), ("q_len", self.q_len)):
            if length.of is not None and length.of not in known:
                where = f"kv_layout={layout}" if length.of == "page" else f"mask={mask}"
                return f"shape {length} has no {length.of} in {where}"
            tokens = length.plus + (length.times * known[length.of] if length.of is not None else 0)
            if tokens < 1:
                return f"shape {name}={length} is {tokens} tokens with kv_layout={layout} and mask={mask}, needs 1"
            lengths.append(tokens)
            known["kv_len"] = tokens
        kv_len, q_len = lengths
        return Shape(self.batch, q_len, kv_len, self.skew)

    def __str__(self) -> str:
        if self.q_len.of is None and self.kv_len.of is None:
            return str(Shape(self.batch, self.q_len.plus, self.kv_len.plus, self.skew))
        lengths = ", lengths: skewed" if self.skew else ""
        return f"{{batch: {self.batch}, q_len: {self.q_len}, kv_len: {self.kv_len}{lengths}}}"
