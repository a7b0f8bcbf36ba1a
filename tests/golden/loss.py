"""What the planted loss moves, counted in its tables: tests of formats and pages outlive a recording by these."""

from pathlib import Path

from kaudit.cell import Cell
from kaudit.diff import changes
from kaudit.table import read

FOLDER = Path(__file__).parent
BEFORE, AFTER = read(FOLDER / "decode-h200.jsonl"), read(FOLDER / "decode-h200-silent.jsonl")
_CHANGES = list(changes(BEFORE, AFTER))

ROWS = len(BEFORE.rows)
_IDS = {row.cell for row in BEFORE.rows.values()}
CELLS = len(_IDS)
CHANGED = len(_CHANGES)
LOST = sum(change.kind == "silent_fallback" for change in _CHANGES)
TOLD_AGAIN = CHANGED - LOST
"""Cells whose attention says another reason for the same path."""
OF_128 = sum(Cell.parse(cell).heads.dim == 128 for cell in _IDS)
OF_64 = sum(Cell.parse(cell).heads.dim == 64 for cell in _IDS)
