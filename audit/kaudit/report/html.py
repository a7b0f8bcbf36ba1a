"""The report as one HTML file that needs no network and runs no script but its own."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct

from kaudit.change import KINDS, Change
from kaudit.explain import explain
from kaudit.findings import Finding
from kaudit.report import lines
from kaudit.report.groups import by_kind
from kaudit.report.parts import Fields
from kaudit.report.payload import payload
from kaudit.report.story import stamp_lines
from kaudit.report.summary import summary
from kaudit.report.verdicts import of_one, of_two
from kaudit.table import Table

SCRIPTS = ("data.js", "view.js", "heat.js", "list.js", "story.js", "kernels.js", "filters.js", "link.js", "main.js")

FIRST = 4  # lines of a table's summary to show unfolded


class Timed(Struct, frozen=True):
    """A table, the name to call it by, and the times measured beside it: microseconds by cell and op."""

    name: str
    table: Table
    times: lines.Times


class Told(Struct, frozen=True):
    """One thing to know first, and what goes with it."""

    line: str
    more: tuple[str, ...] = ()


def of_one_table(one: Timed, measured: Iterable[Finding] = ()) -> str:
    """`measured`: findings of the figures beside the table."""
    rows = list(lines.of_one(one.table, one.times))
    data = payload(rows, of_one(), [""], [one.table.header.paths])
    return _page(one.name, [one], [Told(line) for line in summary(one.table, measured)], data)


def of_two_tables(before: Timed, after: Timed, changes: Sequence[Change], context: Iterable[str], across: bool) -> str:
    """`context`: what differs between the tables besides their rows."""
    tables = before.table, after.table
    rows = list(lines.of_two(*tables, changes, (before.times, after.times), across))
    data = payload(rows, of_two(), ["before", "after"], [table.header.paths for table in tables])
    told = [*map(Told, context), *_kinds(changes, *tables)]
    return _page(f"{before.name} → {after.name}", [before, after], told, data)


def _kinds(changes: Sequence[Change], before: Table, after: Table) -> Iterator[Told]:
    """Each kind of change with its count, and what the rows of it share that the others do not."""
    rules = explain(changes, before, after)
    for kind, group in by_kind(changes).items():
        yield Told(f"{kind}: {len(group)} ({KINDS[kind]})", tuple(map(str, rules.get(kind, ()))))
    if not changes:
        yield Told("nothing changed")


def _page(title: str, tables: Sequence[Timed], told: Sequence[Told], data: tuple[Fields, Fields]) -> str:
    import jinja2
    from markupsafe import Markup

    style, script = _part("page.css"), "\n".join(map(_part, SCRIPTS))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_part("page.html.j2")).render(
        title=title,
        stamps=[(one.name, list(stamp_lines(one.table.header.stamp))) for one in tables],
        told=told,
        most=len(told) if len(tables) > 1 else FIRST,
        # Ours, and hashed: these go in as they are.
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=[Markup(_json(part)) for part in data],
    )


@cache
def _part(name: str) -> str:
    return (files("kaudit.report") / "page" / name).read_text("utf-8").strip()


def _json(data: Fields) -> str:
    """A "<" could end the element that holds the data, or start a comment in it; JSON can spell it otherwise."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
