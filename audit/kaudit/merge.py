"""The tables of shards to the table of the whole: pure."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from kaudit.errors import UserError, told_in
from kaudit.headers import difference
from kaudit.ids import digest
from kaudit.observation import Row
from kaudit.shard import Shard
from kaudit.table import Table, cells_of


@told_in("docs/capture.md")
def merged(tables: Mapping[Path, Table]) -> Table:
    """Raises UserError where a table is no shard, two are not of one sweep or disagree on a row, or one is missing."""
    (first, table), *_ = tables.items()
    whole = replace(table.header, shard="")
    shards = {path: _shard(path, other) for path, other in tables.items()}
    of = shards[first].of
    for path, other in tables.items():
        if differing := difference(whole, replace(other.header, shard="")):
            raise UserError(
                f"{differing.field} is {differing.one} in {first} and {differing.other} in {path}; "
                "merge shards of one sweep, all with the same engine, machine and options"
            )
        if shards[path].of != of:
            raise UserError(
                f"{first} is shard {shards[first]} and {path} is shard {shards[path]}; merge shards of one sweep"
            )
    given = {*shards.values()}
    if missing := [str(shard) for number in range(1, of + 1) if (shard := Shard(number, of)) not in given]:
        raise UserError(f"shard {', '.join(missing)} is missing; sweep it, or name its table")
    found = Table.of(whole, _rows(tables))
    if digest({row.cell for row in found.rows.values()}) != whole.stamp.matrix_digest:
        raise UserError("the shards are not all of the matrix: cells were lost or added since; restore or sweep them")
    return found


def _shard(path: Path, table: Table) -> Shard:
    if not table.header.shard:
        raise UserError(f"{path}: is no shard of a sweep; name tables that kaudit sweep --shard wrote")
    return Shard.parse(table.header.shard, f"{path}:1: shard")


def _rows(tables: Mapping[Path, Table]) -> Iterator[Row]:
    """Of each cell once. Two tables that have the same cell have to agree on all of its ops."""
    found: dict[str, tuple[Path, dict[str, Row]]] = {}
    for path, table in tables.items():
        for cell, rows in cells_of(table).items():
            own = {row.op: row for row in rows}
            before, known = found.setdefault(cell, (path, own))
            if differing := sorted(op for op in own | known if own.get(op) != known.get(op)):
                raise UserError(f"{before} and {path} differ in {cell} {differing[0]}; name one of them")
    return (row for _, rows in found.values() for row in rows.values())
