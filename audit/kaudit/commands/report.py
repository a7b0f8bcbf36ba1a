"""`kaudit report TABLE [TABLE2]`: a table, or what moved between two, as a page to explore."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kaudit.commands.options import Across, TableFile
from kaudit.terminal import check_output, data, save

if TYPE_CHECKING:
    from kaudit.report.html import Timed


def report(
    table: TableFile,
    table2: Annotated[
        Path | None, typer.Argument(metavar="TABLE2", help="A later one: report what moved from TABLE to it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The page [default: TABLE.html, or TABLE-to-TABLE2.html].")] = None,
    across: Across = False,
) -> None:
    """Write a page that shows a table as a heat map, and the story of every cell; of two tables, what moved."""
    from kaudit.diff import changes, comparable
    from kaudit.growths import growths
    from kaudit.report.html import of_one_table, of_two_tables

    check_output(out, table, *([table2] if table2 else []))
    if table2 is None:
        name, page = table.stem, of_one_table(_timed(table), growths(table))
    else:
        before, after = _timed(table), _timed(table2)
        tables = before.table, after.table
        context = comparable(*tables, across)
        name = f"{table.stem}-to-{table2.stem}"
        page = of_two_tables(before, after, list(changes(*tables, across)), context, across)
    path = out or (table2 or table).with_name(f"{name}.html")
    save(path, page.split("\n"))
    data([str(path)])


def _timed(path: Path) -> "Timed":
    from kaudit.measure import read_times
    from kaudit.report.html import Timed
    from kaudit.table import read

    return Timed(path.name, read(path), read_times(path))
