"""Rows of one table, chosen by glob, axis values and op."""

import difflib
from collections.abc import Mapping, Sequence

from kaudit.cell import Cell
from kaudit.errors import UserError, told_in
from kaudit.globs import glob
from kaudit.ids import cells_read
from kaudit.observation import WHOLE_CELL, Row
from kaudit.table import Table, cells_of

NEAREST = 3  # ids to offer for one that is not in the table


@told_in("docs/table.md")
def select(table: Table, only: str | None = None, where: Sequence[str] = (), op: str | None = None) -> list[Row]:
    """The rows that meet all conditions, in table order; a row that speaks for a whole cell is of every op.

    `where` holds `axis=value` conditions. Raises UserError for an axis or op that does not exist, and for a condition
    that nothing meets: it is a slip more often than a finding.
    """
    cells: Sequence[str] = list(dict.fromkeys(row.cell for row in table.rows.values()))
    if only is not None:
        cells = [cell for cell in cells if glob(only)(cell)]
        if not cells:
            raise UserError(f'no cell of the table matches "{only}"; write a glob over ids, as in "decode/*/paged16/*"')
    wanted = set(_where(cells, where) if where else cells)
    ops = list(table.header.paths)
    if op is not None and op not in ops:
        raise UserError(f'"{op}" is not an op of this engine; it has {", ".join(ops)}')
    return [row for row in table.rows.values() if row.cell in wanted and (op is None or row.op in (op, WHOLE_CELL))]


@told_in("docs/table.md")
def cell_rows(table: Table, cell: str) -> tuple[Row, ...]:
    """The rows of one cell. Raises UserError with the ids nearest to one that is not in the table."""
    cells = cells_of(table)
    if cell not in cells:
        nearest = difflib.get_close_matches(cell, _alike(cell, cells), NEAREST, cutoff=0)
        raise UserError(f'no cell "{cell}" in the table; nearest: {", ".join(nearest)}')
    return cells[cell]


def _alike(cell: str, cells: Mapping[str, object]) -> list[str]:
    """A hundred ids with the most tokens of this one: difflib on a whole table would take a minute."""
    tokens = set(cell.split("/"))
    return sorted(cells, key=lambda other: -len(tokens.intersection(other.split("/"))))[:100]


def _where(cells: Sequence[str], conditions: Sequence[str]) -> list[str]:
    with cells_read():
        axes = {cell: Cell.parse(cell).axes() for cell in cells}
    faults = []
    for condition in conditions:
        axis, equals, value = condition.partition("=")
        values = {str(of[axis]) for of in axes.values() if axis in of}
        if not values or not equals:
            known = ", ".join(next(iter(axes.values()), {}))
            faults.append(f"--where {condition}: not axis=value; the axes are {known}")
        elif value not in values:
            faults.append(f"--where {condition}: no cell left has that {axis}; there are {', '.join(sorted(values))}")
        else:
            axes = {cell: of for cell, of in axes.items() if str(of[axis]) == value}
    if faults:
        raise UserError(*faults)
    return list(axes)
