"""The rows of a report page, from one table or from two and what moved between them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kaudit.change import KINDS, Change
from kaudit.findings import Finding, findings
from kaudit.report.payload import Line
from kaudit.report.verdicts import Telling, alone
from kaudit.table import Table

Key = tuple[str, str]
Times = Mapping[Key, float]


def of_one(table: Table, times: Times) -> Iterator[Line]:
    found: defaultdict[Key, list[Finding]] = defaultdict(list)
    for finding in findings(table):
        found[finding.cell, finding.op].append(finding)
    for key, row in table.rows.items():
        told = tuple(alone(row, table.header.paths.get(row.op, ()), found.get(key, ())))
        yield Line(*key, told, (row.outcome,), (times.get(key),))


def of_two(
    before: Table, after: Table, changes: Iterable[Change], times: tuple[Times, Times], across: bool
) -> Iterator[Line]:
    """All rows of either table; with `across`, of the cells that both hold."""
    told: defaultdict[Key, list[Telling]] = defaultdict(list)
    for change in changes:
        told[change.cell, change.op].append((change.kind, change.sentence))
    worst = list(KINDS)
    old, new = ({cell for cell, _ in table.rows} for table in (before, after))
    for key in sorted({*before.rows, *after.rows, *told}):
        if across and not (key[0] in old and key[0] in new):
            continue
        was, now = before.rows.get(key), after.rows.get(key)
        found = tuple(sorted(told.get(key, ()), key=lambda one: worst.index(one[0])))
        # A row that only one table has, and of which nothing is told, is spoken for by a change of its cell.
        spoken_for = not found and (was is None or now is None)
        yield Line(
            *key,
            None if spoken_for else found,
            (was.outcome if was else None, now.outcome if now else None),
            (times[0].get(key), times[1].get(key)),
        )
