"""What the report page says of a row, in a word, a symbol and a tone: of one table, or of two."""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from kaudit.change import KINDS
from kaudit.findings import Finding
from kaudit.glossary import FINDINGS, OUTCOMES
from kaudit.observation import Predicted, Ran, Refused, Row, Skipped, is_fallback, is_silent_fallback
from kaudit.ranks import Paths, named
from kaudit.transition import describe, problems, subject

Tone = Literal["bad", "warn", "note", "good", "calm"]
Telling = tuple[str, str]
"""A verdict's name, and the sentence that says it of one row."""

OWN = {
    "silent_fallback": "a faster path was not taken, and the engine announced no reason for that path",
    "announced_fallback": "no faster path was taken, and the engine said why of each",
    "fastest": "the engine's fastest path, and nothing to report",
    "unchanged": "as before",
}
"""What a verdict means that the glossary lacks, or that means something else where there is no baseline."""

OF_ONE = (
    *("wrong_result", "crashed", "hung", "contradiction", "silent_fallback", "unseen", "predicted_fallback"),
    *("announced_fallback", "refused", "order_dependent", "flapping", "uncompared", "older_kernel", "disagreement"),
    *("skipped", "predicted", "fastest"),
)
OF_TWO = (*KINDS, "unchanged")

LOOKS: dict[str, tuple[str, Tone]] = {
    "wrong_result": ("≠", "bad"),
    "crashed": ("✕", "bad"),
    "hung": ("∞", "bad"),
    "contradiction": ("⇄", "bad"),
    "silent_fallback": ("▼", "bad"),
    "unseen": ("?", "bad"),
    "predicted_fallback": ("▿", "bad"),
    "graph_downgrade": ("◧", "warn"),
    "announced_fallback": ("▽", "warn"),
    "slower": ("◷", "warn"),
    "refused": ("⊘", "warn"),
    "removed": ("−", "warn"),
    "older_kernel": ("◔", "warn"),
    "disagreement": ("≈", "warn"),
    "order_dependent": ("⇅", "warn"),
    "flapping": ("∿", "warn"),
    "uncompared": ("¿", "warn"),
    "rerouted": ("→", "note"),
    "relaunched": ("↻", "note"),
    "reason_changed": ("¶", "note"),
    "added": ("+", "note"),
    "faster": ("»", "good"),
    "improved": ("▲", "good"),
    "recovered": ("✓", "good"),
    "fastest": ("✓", "good"),
    "skipped": ("·", "calm"),
    "predicted": ("◇", "calm"),
    "unchanged": ("=", "calm"),
}


class Verdict(Struct, frozen=True):
    """One that a page can give; its symbol and its name are there for who does not see the tone's colour."""

    name: str
    meaning: str
    symbol: str
    tone: Tone


def verdicts(names: Iterable[str], meanings: dict[str, str]) -> list[Verdict]:
    """Worst first; the last is that of a row of which nothing is told."""
    return [Verdict(name.replace("_", " "), meanings[name], *LOOKS[name]) for name in names]


def of_one() -> list[Verdict]:
    glossed = {name: meaning for name, (meaning, *_) in (*OUTCOMES.items(), *FINDINGS.items())}
    return verdicts(OF_ONE, dict(KINDS.items()) | glossed | OWN)


def of_two() -> list[Verdict]:
    return verdicts(OF_TWO, OWN | dict(KINDS.items()))


def alone(row: Row, paths: Paths, found: Iterable[Finding]) -> Iterator[Telling]:
    """What is told of a row without a baseline, worst first; nothing, where the fastest path ran as it should."""
    told: list[Telling] = list(problems(subject(row.op), row.outcome, paths))
    match row.outcome:
        case Ran(path) as ran if is_fallback(ran, paths) and not is_silent_fallback(ran, paths):
            told.append(("announced_fallback", f"{subject(row.op)} runs {named(path)} instead of {paths[0]}"))
        case Predicted(path) if not told:
            told.append(("predicted", f"{subject(row.op)} is predicted to run {path}; nothing was run"))
        case Refused() | Skipped() as stopped:
            kind = "refused" if isinstance(stopped, Refused) else "skipped"
            told.append((kind, f"{subject(row.op)} {describe(stopped)}"))
    told += [(finding.kind, finding.sentence) for finding in found]
    yield from sorted(told, key=lambda one: OF_ONE.index(one[0]))
