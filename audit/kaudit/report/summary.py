"""A table in a few lines: what a sweep comes to."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kaudit.findings import Finding, findings
from kaudit.observation import Numerics, Predicted, Ran, is_fallback, is_silent_fallback
from kaudit.report.text import unclassified
from kaudit.table import Table
from kaudit.wording import count


def summary(table: Table, measured: Iterable[Finding] = ()) -> Iterator[str]:
    """Outcomes by name, then what is to be looked at: fallbacks, contradictions, findings, kernels without a family.

    `measured`: findings of the figures beside the table.
    """
    rows = list(table.rows.values())
    outcomes = Counter(type(row.outcome).__name__.lower() for row in rows)
    cells = len({row.cell for row in rows})
    by_name = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items()))
    yield f"{count(cells, 'cell')}, {count(len(rows), 'row')}: {by_name}"
    ran = [(row, row.outcome) for row in rows if isinstance(row.outcome, Ran)]
    paths = table.header.paths
    fallbacks = sum(is_fallback(outcome, paths[row.op]) for row, outcome in ran)
    silent = sum(is_silent_fallback(outcome, paths[row.op]) for row, outcome in ran)
    contradictions = sum(outcome.contradiction for _, outcome in ran)
    if table.header.predicted:
        later = sum(isinstance(row.outcome, Predicted) and is_fallback(row.outcome, paths[row.op]) for row in rows)
        yield f"{count(later, 'fallback')} predicted, not observed: nothing was run"
    else:
        yield f"{count(fallbacks, 'fallback')}, {silent} of them silent; {count(contradictions, 'contradiction')}"
    yield from _numerics(outcome.numerics for _, outcome in ran)
    yield from _checked(table)
    found = Counter(finding.sentence for finding in (*findings(table), *measured))
    for sentence, number in found.most_common():
        yield f"finding: {sentence} ({count(number, 'cell')})"
    yield from unclassified(rows)


def _numerics(verdicts: Iterable[Numerics]) -> Iterator[str]:
    """How the results came out, where any was checked."""
    counted = Counter(verdicts)
    if counted.keys() - {"unchecked"}:
        order: tuple[Numerics, ...] = ("unwritten", "wrong", "ok", "unchecked")
        yield f"results: {', '.join(f'{counted[verdict]} {verdict}' for verdict in order if counted[verdict])}"


def _checked(table: Table) -> Iterator[str]:
    """What was run more than once: that nothing differs says something only then."""
    header = table.header
    where = " between all shards" if header.shard else ""
    ran_again = [f"{count(header.sample, 'cell')} alone{where}"] if header.sample else []
    ran_again += [f"every cell {count(header.repeat, 'time')}"] if header.repeat > 1 else []
    if ran_again:
        differing = len({row.cell for row in table.rows.values() if row.others})
        yield f"run again: {', '.join(ran_again)}; {count(differing, 'cell')} came to something else"
