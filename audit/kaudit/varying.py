"""What is told of cells whose runs differ within one sweep: pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from kaudit.change import Change, Kind
from kaudit.observation import Other, Outcome, Ran, Rerun, Row, Unseen
from kaudit.ranks import Paths
from kaudit.transition import between, describe, problems, subject

Rows = Sequence[Row]
BothPaths = tuple[Mapping[str, Paths], Mapping[str, Paths]]
"""The engine's paths by op, in the older table and in the newer."""

Variation = Literal["order_dependent", "flapping", "uncompared"]

WHERE: dict[Rerun, str] = {"again": "in another run", "alone": "alone in a fresh process"}

NO_LOSS: tuple[Kind, ...] = ("rerouted", "relaunched", "reason_changed", "added", "improved", "recovered")
"""Kinds of change that, where only another run shows them, are but flapping."""


def variations(row: Row, paths: Paths) -> Iterator[tuple[Variation, str]]:
    """What the other runs of a row showed, each with what it means, in a sentence."""
    for other in row.others:
        unseen = isinstance(row.outcome, Unseen) or isinstance(other.outcome, Unseen)
        kind: Variation = "uncompared" if unseen else "order_dependent" if other.run == "alone" else "flapping"
        for sentence in _against(row, other, paths):
            yield kind, f"{WHERE[other.run]}, {sentence}"


def _against(row: Row, other: Other, paths: Paths) -> Iterator[str]:
    op = subject(other.op)
    match row.outcome, other.outcome:
        case _, None:
            yield f"{op} did not run"
        case (Ran() as one, Ran() as another) if row.op == other.op:
            yield from (sentence for _, sentence in between(op, one, another, paths, paths))
        case _, outcome:
            yield f"{op} {describe(outcome)}"


def told(found: Iterable[Change], was: Rows, now: Rows, paths: BothPaths, *, repeated: bool) -> Iterator[Change]:
    """The changes `found` in a cell's first runs, with what its other runs make of them; `repeated`: all of the newer
    table's cells were run more than once.

    An outcome that the baseline saw, too, in another run, is no new loss: it flaps; unless the newer runs all have it,
    for then what came and went has come to stay. Each other one says that the runs differ. And what only another run
    shows is a change as well, if it is new.
    """
    first = {(row.op, row.outcome) for row in was}
    comes_and_goes = not repeated or any((other.op, other.outcome) in first for row in now for other in row.others)
    # What was not seen says nothing, and what a fresh process does is no word on what it does in company.
    excused = {
        (other.op, other.outcome)
        for row in was
        for other in row.others
        if comes_and_goes and other.run == "again" and not isinstance(other.outcome, Unseen)
    }
    yielded = False
    for change in found:
        yielded = True
        if change.after is not None and (change.after.op, change.after.outcome) in excused:
            yield _with_word(replace(change, kind="flapping"), "but another run of the baseline saw that, too")
        else:
            yield _compared(change, was, now)
    seen = first | {(other.op, other.outcome) for row in was for other in row.others}
    before = {row.op: row for row in was}
    for row in now:
        for other in row.others:
            if (other.op, other.outcome) not in seen:
                yielded = True
                base = before.get(other.op)
                for kind, sentence in _new(base.outcome if base else None, other, paths):
                    kind = "flapping" if kind in NO_LOSS else kind
                    yield Change(kind, row.cell, row.op, f"{WHERE[other.run]}, {sentence}", before.get(row.op), row)
    if not yielded:
        yield from _others_only(before, now)


def _new(was: Outcome | None, other: Other, paths: BothPaths) -> Iterator[tuple[Kind, str]]:
    """What another run shows that the baseline has not; `was`: what the baseline has of the op."""
    op = subject(other.op)
    old, new = (of.get(other.op, ()) for of in paths)
    if other.outcome is None:
        yield "flapping", f"{op} did not run"
    elif was is not None:
        yield from between(op, was, other.outcome, old, new)
    elif found := list(problems(op, other.outcome, new)):
        yield from found
    else:
        yield "flapping", f"{op} {describe(other.outcome)}"


def _compared(change: Change, was: Rows, now: Rows) -> Change:
    if any(row.others for row in now if row.op in (change.op, now[0].op)):
        return _with_word(change, "not in every run")
    if any(row.others for row in was if row.op in (change.op, was[0].op)):
        return _with_word(change, "the baseline's runs differ, too")
    return change


def _with_word(change: Change, word: str) -> Change:
    return replace(change, sentence=f"{change.sentence}; {word}")


def _others_only(before: Mapping[str, Row], now: Rows) -> Iterator[Change]:
    """The first runs are alike, and the others show nothing that is new."""
    for row in now:
        was = before.get(row.op)
        if was is not None and was.others != row.others:
            fact = "not all that other runs of the baseline showed is seen now"
            yield Change("flapping", row.cell, row.op, f"{subject(row.op)}: {fact}", was, row)
