"""Changes, verdicts and loud facts as plain lines for a terminal or a log."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kaudit.change import KINDS, Change, Kind
from kaudit.explain import Rule
from kaudit.gate import Verdict
from kaudit.observation import UNCLASSIFIED, WHOLE_CELL, Ran, Row
from kaudit.policy import Waiver

CELLS = 5  # of one kind to list, where nothing else is asked for


def changes(found: Iterable[Change], rules: Mapping[Kind, Sequence[Rule]], limit: int = CELLS) -> Iterator[str]:
    """Grouped by kind, worst first; in it by sentence, the most frequent first, with at most `limit` cells a kind."""
    groups: defaultdict[Kind, list[Change]] = defaultdict(list)
    for change in found:
        groups[change.kind].append(change)
    for kind in KINDS:
        if kind in groups:
            yield from _group(kind, groups[kind], rules.get(kind, ()), limit)


def _group(kind: Kind, group: Sequence[Change], rules: Sequence[Rule], limit: int) -> Iterator[str]:
    yield f"{kind}: {len(group)} ({KINDS[kind]})"
    yield from (f"  {rule}" for rule in rules)
    left = limit
    sentences: defaultdict[str, list[str]] = defaultdict(list)
    for change in group:
        sentences[change.sentence].append(change.cell)
    for sentence, cells in sorted(sentences.items(), key=lambda item: -len(item[1])):
        if left <= 0:
            break
        yield f"  {sentence}" + (f" ({len(cells)} cells)" if len(cells) > 1 else "")
        yield from (f"    {cell}" for cell in cells[:left])
        left -= len(cells)
    if len(group) > limit:
        yield f"  and {len(group) - limit} more"
    yield ""


def summary(verdict: Verdict) -> str:
    """The verdict in one line."""
    kinds = Counter(change.kind for change in verdict.failing)
    failing = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kind in kinds)
    rest = f"{len(verdict.waived)} waived, {len(verdict.tolerated)} tolerated"
    return f"gate passed: {rest}" if verdict.passed else f"gate failed: {failing}; {rest}"


def waivers(verdict: Verdict) -> Iterator[str]:
    """What each waiver in use lets pass, and which ones to take out of the file."""
    used: defaultdict[Waiver, int] = defaultdict(int)
    for _, waiver in verdict.waived:
        used[waiver] += 1
    for waiver, times in used.items():
        yield f"waived until {waiver.expires}: {times} {waiver.kind} in {_scope(waiver)}: {waiver.because}"
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
        yield f"UNCLASSIFIED KERNEL {name}: in {len(where)} rows, as {example}; add a pattern to families.yaml"


def _scope(waiver: Waiver) -> str:
    return waiver.cells + (f" {waiver.op}" if waiver.op not in (None, WHOLE_CELL) else "")
