"""`kaudit report TABLE [TABLE2]`: a table, or what moved between two, as a page to explore."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kaudit.terminal import data

if TYPE_CHECKING:
    from kaudit.report.html import Timed


def report(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A table that kaudit sweep wrote.")],
    table2: Annotated[
        Path | None, typer.Argument(metavar="TABLE2", help="A later one: report what moved from TABLE to it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The page [default: TABLE.html, or TABLE-to-TABLE2.html].")] = None,
    across: Annotated[bool, typer.Option(help="Compare the cells that two different matrices or GPUs share.")] = False,
) -> None:
    """Write a page that shows a table as a heat map, and the story of every cell; of two tables, what moved."""
    from kaudit.diff import changes, comparable
    from kaudit.report.html import of_one_table, of_two_tables

    if table2 is None:
        name, page = table.stem, of_one_table(_timed(table))
    else:
        before, after = _timed(table), _timed(table2)
        tables = before.table, after.table
        context = comparable(*tables, across)
        name = f"{table.stem}-to-{table2.stem}"
        page = of_two_tables(before, after, list(changes(*tables, across)), context, across)
    path = out or (table2 or table).with_name(f"{name}.html")
    _write(path, page)
    data([str(path)])


def _timed(path: Path) -> "Timed":
    from kaudit.measure import read_times
    from kaudit.report.html import Timed
    from kaudit.table import read

    return Timed(path.name, read(path), read_times(path))


def _write(path: Path, page: str) -> None:
    from kaudit.atomic import replacing
    from kaudit.errors import UserError

    try:
        with replacing(path) as file:
            # What is no character (half of a surrogate pair) can stand in a file's name, not in a page.
            file.write(page.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose another --out") from None
