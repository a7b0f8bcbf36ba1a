"""What changed between two outcomes of one op: pairs of kind and sentence."""

from collections.abc import Iterator
from typing import assert_never

from kaudit.change import Kind
from kaudit.launches import kernels_changed
from kaudit.observation import (
    WHOLE_CELL,
    Crashed,
    GraphMode,
    Hung,
    Outcome,
    Ran,
    Refused,
    Skipped,
    Unseen,
    is_fallback,
    is_silent_fallback,
)
from kaudit.ranks import Paths, named, step
from kaudit.reasons import claim_changed, reasons_changed, why

Found = Iterator[tuple[Kind, str]]
NotRan = Refused | Crashed | Hung | Unseen | Skipped

FULLNESS: dict[GraphMode, int] = {"eager": 0, "partial": 1, "full": 2}
BAD_NUMERICS = {"wrong": "gives a wrong result", "unwritten": "leaves part of its output unwritten"}


def subject(op: str) -> str:
    """An op as the subject of a sentence."""
    return "the cell" if op == WHOLE_CELL else op


def describe(outcome: Outcome) -> str:
    """An outcome as the predicate of a sentence."""
    match outcome:
        case Ran(path):
            return f"ran {named(path)}"
        case Refused(reason):
            return f"was refused: {reason}"
        case Crashed(how):
            return f"crashed ({how})"
        case Hung(limit):
            return f"hung (no end within {limit:g} s)"
        case Unseen(reason):
            return f"could not be seen: {reason}"
        case Skipped(reason):
            return f"was not run: {reason}"
        case never:
            assert_never(never)


def kind_of(outcome: NotRan) -> Kind:
    """The kind of change that ends in this outcome."""
    match outcome:
        case Refused():
            return "refused"
        case Crashed():
            return "crashed"
        case Hung():
            return "hung"
        case Unseen():
            return "unseen"
        case Skipped():
            return "removed"
        case never:
            assert_never(never)


def problems(op: str, outcome: Outcome, paths: Paths) -> Found:
    """What is wrong with an outcome by itself, where there is nothing to compare it with."""
    match outcome:
        case Ran():
            if outcome.contradiction:
                yield "contradiction", _contradiction(op, outcome)
            if outcome.numerics in BAD_NUMERICS:
                yield "wrong_result", f"{op} {BAD_NUMERICS[outcome.numerics]}"
            if is_silent_fallback(outcome, paths):
                yield (
                    "silent_fallback",
                    f"{op} runs {named(outcome.path)} instead of {paths[0]}{why(outcome, paths[0])}",
                )
        case Crashed() | Hung() | Unseen():
            yield kind_of(outcome), f"{op} {describe(outcome)}"
        case Refused() | Skipped():
            pass
        case never:
            assert_never(never)


def between(op: str, was: Outcome, now: Outcome, old: Paths, new: Paths) -> Found:
    """The changes from `was` to `now`; `old` and `new` are the engine's paths for the op in either table.

    Outcomes that differ yield at least one. Equal ones may, where a faster path has entered the list.
    """
    match was, now:
        case Ran(), Ran():
            yield from _both_ran(op, was, now, old, new)
        case _, Ran():
            yield "recovered", f"{op} runs {named(now.path)}; before, it {describe(was)}"
            yield from problems(op, now, new)
        case ((Crashed() | Hung()), Refused()):
            yield "improved", f"{op} {describe(now)}; before, it {describe(was)}"
        case _ if type(was) is not type(now):
            yield kind_of(now), f"{op} {describe(now)}; before, it {describe(was)}"
        case _ if was != now:
            yield "reason_changed", f"{op} {describe(now)}; before, it {describe(was)}"


def _both_ran(op: str, was: Ran, now: Ran, old: Paths, new: Paths) -> Found:
    contradicts = now.contradiction and not was.contradiction
    if contradicts:
        yield "contradiction", _contradiction(op, now)
    yield from _numerics(op, was, now)
    moved = step(was.path, now.path, old, new)
    yield from _fallback(op, was, now, old, new, moved)
    yield from _graph(op, was, now)
    if moved < 0:
        yield "improved", f"{op} runs {named(now.path)} instead of {named(was.path)}"
    if moved == 0 and (was.path != now.path or was.kernels != now.kernels):
        yield kernels_changed(op, was, now)
    if not contradicts and (claim := claim_changed(op, was, now)):
        yield "reason_changed", claim


def _contradiction(op: str, ran: Ran) -> str:
    shown = f"its kernels are those of {ran.path}" if ran.path is not None else "its kernels match no listed path"
    return f"{op} is claimed to run {ran.claimed}, {shown}"


def _numerics(op: str, was: Ran, now: Ran) -> Found:
    if now.numerics == was.numerics:
        return
    match now.numerics:
        case "wrong" | "unwritten":
            yield "wrong_result", f"{op} {BAD_NUMERICS[now.numerics]}; before: {was.numerics}"
        case "ok" if was.numerics == "unchecked":
            yield "added", f"{op}'s result is checked now, and right"
        case "ok":
            yield "recovered", f"{op}'s result is right; before: {was.numerics}"
        case "unchecked":
            yield "removed", f"{op}'s result is no longer checked; before: {was.numerics}"
        case never:
            assert_never(never)


def _fallback(op: str, was: Ran, now: Ran, old: Paths, new: Paths, moved: int) -> Found:
    """A fast path lost, or kept without the reason that explained its absence, or only the reason changed."""
    fell, falls = is_fallback(was, old), is_fallback(now, new)
    here, there = named(now.path), named(was.path)
    if moved > 0 or (falls and not fell):
        lost = was.path if moved > 0 else new[0]
        if moved > 0:
            fact = f"{op} left {there} for {here}"
        elif was.path == now.path:
            fact = f"{op} still runs {here}, although {lost} now stands before it in the engine's list"
        else:
            fact = f"{op} went from {there} to {here}, although {lost} now stands first in the engine's list"
        delisted = ": the engine no longer lists it" if lost is not None and lost not in new else ""
        # What it says of other paths, it may have said all along: that does not tell why this one is gone.
        said = now.announced if delisted else now.explains(lost)
        yield "announced_fallback" if said else "silent_fallback", fact + (delisted or why(now, lost))
    elif falls and (muted := _muted(was, now, new)):
        still = f"still runs {here}" if was.path == now.path else f"runs {here} (before, {there})"
        asked = why(now, muted).removeprefix(" without a word")
        yield "silent_fallback", f"{op} {still} instead of {muted}, and no longer says why{asked}"
    elif fell and not falls and was.path == now.path:
        yield "reason_changed", f"{op} still runs {here}, now first in the engine's list; before, {old[0]} was"
    elif was.path == now.path and was.rejections != now.rejections:
        yield "reason_changed", f"{op} still runs {here}; {reasons_changed(was, now)}"


def _muted(was: Ran, now: Ran, paths: Paths) -> str | None:
    """The fastest path whose absence the engine used to explain and no longer does, whatever it says of others."""
    faster = paths[: paths.index(now.path)] if now.path in paths else paths
    lost = (path for path in faster if was.explains(path) and not now.explains(path))
    return next(lost, paths[0] if was.announced and not now.announced else None)


def _graph(op: str, was: Ran, now: Ran) -> Found:
    got, missed = FULLNESS[now.graph_got], FULLNESS[now.graph_asked] - FULLNESS[now.graph_got]
    got_before, missed_before = FULLNESS[was.graph_got], FULLNESS[was.graph_asked] - FULLNESS[was.graph_got]
    fact = f"{op} runs {_graphs(now)}; before, {_graphs(was)}"
    if got < got_before or missed > max(missed_before, 0):
        yield "graph_downgrade", fact
    elif got > got_before:
        yield "improved", fact
    elif was.graph_asked != now.graph_asked:
        yield "reason_changed", fact


def _graphs(ran: Ran) -> str:
    words = {"eager": "without a CUDA graph", "partial": "partly in a CUDA graph", "full": "in a CUDA graph"}
    asked = f" (asked: {ran.graph_asked})" if ran.graph_asked != ran.graph_got else ""
    return words[ran.graph_got] + asked
