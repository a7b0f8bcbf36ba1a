"""An engine's paths as a table for people: what each needs, or what a cell does not meet of it."""

from collections.abc import Iterable, Iterator

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kaudit.catalogue import Catalogue, Listed


def lines(found: Catalogue, op: str | None, width: int) -> Iterator[str]:
    """`op`: only that one. `width` in characters."""
    yield f"{found.engine}@{found.revision}" + (f" on {found.device}" if found.cell else "")
    if found.cell:
        yield f"{found.cell}" + (f": refused: {found.refused}" if found.refused else "")
    ops = dict.fromkeys(each.op for each in found.paths if op in (None, each.op))
    table = _answers(found, ops) if found.cell else _needs(found, ops)
    console = Console(width=width, color_system=None)
    with console.capture() as printed:
        console.print(table)
    yield from (line.rstrip() for line in printed.get().splitlines())
    if not found.stated:
        yield f"{found.engine} does not state what its paths need"


def _needs(found: Catalogue, ops: Iterable[str]) -> Table:
    table = _table("requires", "worth it if", "shows") if found.stated else _table("shows")
    for op in ops:
        for place, path in enumerate(found.of(op), 1):
            stated = (path.requires, path.worth) if found.stated else ()
            _row(table, op, place, path, *stated, path.shows)
        table.add_section()
    return table


def _answers(found: Catalogue, ops: Iterable[str]) -> Table:
    table = _table("this cell")
    for op in ops:
        chosen = found.chosen(op)
        for place, path in enumerate(found.of(op), 1):
            if op not in found.ops:
                answer = ["has no such op"]
            elif path is chosen:
                answer = ["is served by it"]
            else:
                answer = [str(unmet) for unmet in path.unmet] or ["would be served, were the faster ones not there"]
            _row(table, op, place, path, answer)
        table.add_section()
    return table


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("op", "", "kernel", *columns):
        # Names are searched for: they stay whole, and what is said of them breaks.
        table.add_column(name, no_wrap=name not in columns, overflow="fold")
    return table


def _row(table: Table, op: str, place: int, path: Listed, *texts: Iterable[str]) -> None:
    shown = (op if place == 1 else "", str(place), path.path, *("\n".join(text) for text in texts))
    table.add_row(*map(Text, shown))  # Text: brackets of a regular expression are no markup
