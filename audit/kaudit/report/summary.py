"""A table in a few lines: what a sweep comes to."""

from collections import Counter
from collections.abc import Iterator

from kaudit.findings import findings
from kaudit.observation import Ran, is_fallback, is_silent_fallback
from kaudit.report.text import unclassified
from kaudit.table import Table


def summary(table: Table) -> Iterator[str]:
    """Outcomes by name, then what is to be looked at: fallbacks, contradictions, findings, kernels without a family."""
    rows = list(table.rows.values())
    outcomes = Counter(type(row.outcome).__name__.lower() for row in rows)
    cells = len({row.cell for row in rows})
    yield f"{cells} cells, {len(rows)} rows: {', '.join(f'{count} {name}' for name, count in sorted(outcomes.items()))}"
    ran = [(row, row.outcome) for row in rows if isinstance(row.outcome, Ran)]
    paths = table.header.paths
    fallbacks = sum(is_fallback(outcome, paths[row.op]) for row, outcome in ran)
    silent = sum(is_silent_fallback(outcome, paths[row.op]) for row, outcome in ran)
    contradictions = sum(outcome.contradiction for _, outcome in ran)
    yield f"{fallbacks} fallbacks, {silent} of them silent; {contradictions} contradictions"
    for sentence, count in Counter(finding.sentence for finding in findings(table)).most_common():
        yield f"finding: {sentence} ({count} cells)"
    yield from unclassified(rows)
