"""What the other runs of a cell showed, put beside the first: only where it is something else."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from kaudit.journal import Entry
from kaudit.observation import WHOLE_CELL, Other, Outcome, Rerun, Row
from kaudit.runs import ALONE
from kaudit.wire import Measure

Rows = Sequence[Row]


def results(entries: Iterable[Entry]) -> tuple[list[Row], list[Measure]]:
    """The rows of the first run, with what the others saw otherwise; and the first run's measures."""
    first: dict[str, Rows] = {}
    again: defaultdict[str, list[tuple[str, Rows]]] = defaultdict(list)
    measures: list[Measure] = []
    same: dict[Outcome, Outcome] = {}
    for entry in entries:
        # Many cells share an outcome: each is held once.
        rows = [Row(row.cell, row.op, same.setdefault(row.outcome, row.outcome)) for row in entry.rows]
        if entry.run:
            again[entry.cell].append((entry.run, rows))
        else:
            first[entry.cell] = rows
            measures += entry.measures
    return [row for cell, rows in first.items() for row in with_others(rows, _in_order(again[cell]))], measures


def with_others(first: Rows, reruns: Iterable[tuple[Rerun, Rows]]) -> Iterator[Row]:
    """The rows of the first run, each with the outcomes of other runs that differ, in the order of the runs.

    What another run says of an op that the first has no row of, or of the whole cell, stands with the first row.
    """
    found: dict[str, dict[Other, None]] = {row.op: {} for row in first}
    for how, rows in reruns:
        for op, outcome in _differing(first, rows):
            found.get(op, found[first[0].op])[Other(how, op, outcome)] = None
    return (replace(row, others=tuple(found[row.op])) if found[row.op] else row for row in first)


def _in_order(reruns: Iterable[tuple[str, Rows]]) -> Iterator[tuple[Rerun, Rows]]:
    """Whichever ended first."""
    for run, rows in sorted(reruns, key=lambda rerun: (rerun[0] == ALONE, len(rerun[0]), rerun[0])):
        yield "alone" if run == ALONE else "again", rows


def _differing(first: Rows, again: Rows) -> Iterator[tuple[str, Outcome | None]]:
    was, now = {row.op: row.outcome for row in first}, {row.op: row.outcome for row in again}
    for op, outcome in now.items():
        if was.get(op) != outcome:
            yield op, outcome
    # Where a row speaks for the whole cell, of either run, the ops say nothing more.
    if WHOLE_CELL not in was.keys() | now.keys():
        yield from ((op, None) for op in was if op not in now)
