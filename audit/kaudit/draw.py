"""An order of cells that looks random and is the same on every machine: to draw samples, and to deal out shards."""

import hashlib
from collections.abc import Sequence

from kaudit.cell import Cell


def drawn(cells: Sequence[Cell], seed: str) -> list[Cell]:
    return sorted(cells, key=lambda cell: hashlib.sha256(f"{seed} {cell.id}".encode()).digest())
