"""Changes, verdicts and loud facts as plain lines for a terminal or a log."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kaudit.change import KINDS, Change, Kind
from kaudit.expect import Miss
from kaudit.explain import Rule
from kaudit.gate import Verdict
from kaudit.observation import UNCLASSIFIED, WHOLE_CELL, Ran, Row
from kaudit.policy import Waiver
from kaudit.report.groups import T, by_kind, outline
from kaudit.report.judged import Report
from kaudit.wording import count


def render(report: Report) -> Iterator[str]:
    """What fails the gate, or all that a diff found, and the expectations that are not met."""
    yield from changes(report.told, report.rules(), report.most)
    yield from expectations(report.unmet, report.most)


def changes(found: Iterable[Change], rules: Mapping[Kind, Sequence[Rule]], limit: int) -> Iterator[str]:
    """Grouped by kind, worst first; in it by sentence, the most frequent first, with at most `limit` cells a kind."""
    for kind, group in by_kind(found).items():
        yield from _group(kind, group, rules.get(kind, ()), limit)


def _group(kind: Kind, group: Sequence[Change], rules: Sequence[Rule], limit: int) -> Iterator[str]:
    yield f"{kind}: {len(group)} ({KINDS[kind]})"
    yield from (f"  {rule}" for rule in rules)
    yield from _listed(group, limit)


def expectations(unmet: Sequence[Miss], limit: int) -> Iterator[str]:
    """The expectations that are not met, by sentence, with at most `limit` cells."""
    if unmet:
        yield f"not met: {count(len(unmet), 'expectation')} (what the matrix's expect: rules ask for)"
        yield from _listed(unmet, limit)


def _listed(group: Sequence[T], limit: int) -> Iterator[str]:
    yield from (f"{'  ' * depth}  {line}" for depth, line in outline(group, limit))
    yield ""


def verdict(report: Report) -> Iterator[str]:
    """Words on a gate: its waivers, and the verdict in one line. On a diff, that nothing changed."""
    if report.verdict is not None:
        yield from waivers(report.verdict)
        yield summary(report.verdict, len(report.unmet))
    elif not report.changes:
        yield "nothing changed"


def summary(verdict: Verdict, unmet: int = 0) -> str:
    """The verdict in one line. `unmet`: how many expectations are not met, each of which fails the gate, too."""
    kinds = by_kind(verdict.failing)
    failing = [f"{len(changes)} {kind}" for kind, changes in kinds.items()]
    failing += [f"{count(unmet, 'expectation')} not met"] * bool(unmet)
    rest = f"{len(verdict.waived)} waived, {len(verdict.tolerated)} tolerated"
    return f"gate failed: {', '.join(failing)}; {rest}" if failing else f"gate passed: {rest}"


def waivers(verdict: Verdict) -> Iterator[str]:
    """What each waiver in use lets pass, and which ones to take out of the file."""
    yield from _used(verdict)
    yield from outdated(verdict)


def _used(verdict: Verdict) -> Iterator[str]:
    used: defaultdict[Waiver, int] = defaultdict(int)
    for _, waiver in verdict.waived:
        used[waiver] += 1
    for waiver, times in used.items():
        yield f"waived until {waiver.expires}: {times} {waiver.kind} in {_scope(waiver)}: {waiver.because}"


def outdated(verdict: Verdict) -> Iterator[str]:
    """The waivers to take out of the file, or to renew."""
    for waiver in verdict.stale:
        yield f"stale waiver: no {waiver.kind} in {_scope(waiver)} any more; remove it ({waiver.because})"
    for waiver in verdict.expired:
        what = f"{waiver.kind} in {_scope(waiver)}"
        yield f"waiver expired on {waiver.expires}: {what}; renew or remove it ({waiver.because})"


def unclassified(rows: Iterable[Row]) -> Iterator[str]:
    """One line for every kernel that no pattern knows: what it does to the paths is not known either."""
    seen: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if isinstance(row.outcome, Ran):
            for name in {kernel.name for kernel in row.outcome.kernels if kernel.family == UNCLASSIFIED}:
                seen[name].append(row)
    for name, where in sorted(seen.items()):
        example = f"{where[0].cell} {where[0].op}"
        yield f"UNCLASSIFIED KERNEL {name}: in {count(len(where), 'row')}, as {example}; add a pattern to families.yaml"


def _scope(waiver: Waiver) -> str:
    return waiver.cells + (f" {waiver.op}" if waiver.op not in (None, WHOLE_CELL) else "")
