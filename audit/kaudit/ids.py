"""Cell ids as a table holds them: text, which an editor or a merge may have spoilt."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from msgspec import Struct

from kaudit.cell import Cell
from kaudit.errors import UserError, told_in

Value = str | int


@contextmanager
def cells_read() -> Iterator[None]:
    """Around the reading of ids: the ValueError of one that is none becomes a UserError."""
    with told_in("docs/table.md"):
        try:
            yield
        except ValueError as error:
            what = " ".join(str(error).split())
            raise UserError(f"a table holds what is no cell: {what}; restore it or sweep again") from None


def digest(cells: Iterable[str]) -> str:
    """SHA-256 over the ids, sorted: 16 hex digits."""
    return hashlib.sha256("\n".join(sorted(cells)).encode()).hexdigest()[:16]


class Axis(Struct, frozen=True):
    """`values` sorted; `place` of the id's token that decides it; `codes`: per distinct token, the value's number."""

    name: str
    place: int
    values: list[Value]
    codes: list[int]


class Ids(Struct, frozen=True):
    """Ids by place: `tokens` are the distinct ones that stand there; `columns` has, for each id, its token's number."""

    tokens: list[list[str]]
    columns: list[list[int]]

    @classmethod
    def of(cls, cells: Iterable[str]) -> Self:
        """Raises ValueError where a cell has not as many tokens as an id."""
        numbers: list[dict[str, int]] = [{} for _ in Cell.__struct_fields__]
        columns: list[list[int]] = [[] for _ in numbers]
        for cell in cells:
            parts = cell.split("/")
            if len(parts) != len(numbers):
                Cell.parse(cell)  # which says what is wrong with it
            for column, known, part in zip(columns, numbers, parts, strict=True):
                column.append(known.setdefault(part, len(known)))
        return cls(list(map(list, numbers)), columns)

    def axes(self) -> Iterator[Axis]:
        """Those of which the ids hold several values. Raises ValueError where a token is none.

        An axis is a function of one token. So only the distinct tokens are parsed, a few hundred of them, in copies of
        the first id; what varies among the copies is what the token decides.
        """
        first = [next(iter(distinct), "") for distinct in self.tokens]
        for place, distinct in enumerate(self.tokens):
            ids = ("/".join((*first[:place], token, *first[place + 1 :])) for token in distinct)
            parsed = [Cell.parse(copy).axes() for copy in ids]
            for name in parsed[0] if parsed else ():
                values = sorted({axes[name] for axes in parsed}, key=lambda value: (isinstance(value, str), value))
                if len(values) > 1:
                    numbers = {value: number for number, value in enumerate(values)}
                    yield Axis(name, place, values, [numbers[axes[name]] for axes in parsed])
