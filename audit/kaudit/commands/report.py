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
    from kaudit.measure import with_measures
    from kaudit.report.html import of_one_table, of_two_tables

    given = [table] if table2 is None else [table, table2]
    read = with_measures(*given)
    check_output(out, *read)
    timed = [_timed(each) for each in given]
    path = out or given[-1].with_name("-to-".join(each.stem for each in given) + ".html")
    check_output(path, *read)
    match timed:
        case [one]:
            page = of_one_table(one, growths(table))
        case [before, after]:
            tables = before.table, after.table
            context = comparable(*tables, across)
            page = of_two_tables(before, after, list(changes(*tables, across)), context, across)
    save(path, page.split("\n"))
    data([str(path)])


def _timed(path: Path) -> "Timed":
    from kaudit.measure import read_times
    from kaudit.report.html import Timed
    from kaudit.table import read

    return Timed(path.name, read(path), read_times(path))
