"""Whether a table in git is one that `kaudit sweep` wrote, to the byte: its diffs tell rows only then."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.table import Table, encoded, read


def faults(path: Path) -> Iterator[str]:
    """At most one per table: what `read` refuses, or the first line that would be written otherwise."""
    try:
        table = read(path)
    except UserError as error:
        yield from error.faults
        return
    for number, (cell, _) in enumerate(table.rows, start=2):
        try:
            Cell.parse(cell)
        except ValueError as error:
            yield f"{path}:{number}: {error}; restore it or sweep again"
            return
    found, wanted = path.read_bytes(), encoded(Table.of(table.header, table.rows.values()))
    if found == wanted.replace(b"\n", b"\r\n"):
        yield f'{path}: its lines end in CRLF; write "*.jsonl -text" into .gitattributes, and restore it'
    elif found != wanted:
        pairs = zip_longest(found.split(b"\n"), wanted.split(b"\n"))
        number = next(number for number, (is_, ought) in enumerate(pairs, start=1) if is_ != ought)
        yield (
            f"{path}:{number}: not as kaudit writes it: rows sorted by cell and op, keys sorted, defaults left out; "
            "restore it or sweep again"
        )
