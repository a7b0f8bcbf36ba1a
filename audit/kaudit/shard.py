"""A shard: one of n equal parts of a matrix, for jobs that sweep side by side; `kaudit merge` joins their tables."""

import re
from collections.abc import Sequence

from msgspec import Struct

from kaudit.cell import Cell
from kaudit.draw import drawn
from kaudit.errors import UserError, told_in


class Shard(Struct, frozen=True):
    """Number `number`, from 1, of `of`. Spelled `2/8`."""

    number: int
    of: int

    @classmethod
    @told_in("docs/capture.md")
    def parse(cls, text: str, where: str = "--shard") -> "Shard":
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f'{where}: "{text}" is no part of a sweep; write 1/4 to 4/4 for four parts')
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, cells: Sequence[Cell]) -> set[str]:
        """The ids of its cells. They are dealt out in a drawn order: in that of the ids, as many lengths as shards
        would give one shard all the longest."""
        return {cell.id for cell in drawn(cells, "shard")[self.number - 1 :: self.of]}
