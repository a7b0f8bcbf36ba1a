"""What changed between two outcomes of one op: pairs of kind and sentence."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from kaudit.change import Kind
from kaudit.launches import kernels_changed
from kaudit.observation import (
    WHOLE_CELL,
    Crashed,
    GraphMode,
    Hung,
    Outcome,
    Predicted,
    Ran,
    Refused,
    Skipped,
    Unseen,
    is_fallback,
    unannounced,
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
        case Predicted(path):
            return f"was predicted to run {path}"
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
                yield "wrong_result", f"{op} {_bad_numerics(outcome)}"
            if silent := unannounced(outcome, paths):
                lost = silent[0]
                yield "silent_fallback", f"{op} runs {named(outcome.path)} instead of {lost}{why(outcome, lost)}"
        case Predicted(path) if is_fallback(outcome, paths):
            fact = f"{op} is predicted to run {path} instead of {paths[0]}"
            yield "predicted_fallback", fact + why(outcome, paths[0])
        case Crashed() | Hung() | Unseen():
            yield kind_of(outcome), f"{op} {describe(outcome)}"
        case Predicted() | Refused() | Skipped():
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
        case Predicted(), Predicted():
            yield from _both_predicted(op, was, now, old, new)
        case (Ran(), Predicted()) | (Predicted(), Ran()):
            raise ValueError("a prediction is held against a prediction: diff.comparable() refuses such tables")
        case _, Ran():
            yield "recovered", f"{op} runs {named(now.path)}; before, it {describe(was)}"
            yield from problems(op, now, new)
        case _, Predicted(path):
            yield "recovered", f"{op} is predicted to run {path}; before, it {describe(was)}"
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


def _both_predicted(op: str, was: Predicted, now: Predicted, old: Paths, new: Paths) -> Found:
    """Nothing was launched, and nothing announced: only paths and the selector's reasons can differ."""
    moved = step(was.path, now.path, old, new)
    fact = f"{op} is predicted to run {now.path} instead of {was.path}"
    if moved > 0:
        yield "predicted_fallback", fact + why(now, was.path)
    elif is_fallback(now, new) and not is_fallback(was, old):
        still = f"{op} is predicted to run {now.path}, as before, although" if was.path == now.path else f"{fact}, and"
        yield "predicted_fallback", f"{still} {new[0]} now stands first in the engine's list{why(now, new[0])}"
    elif moved < 0:
        yield "improved", fact
    elif was.path != now.path:
        yield "rerouted", f"{fact}, of the same rank"
    elif was != now:
        yield "reason_changed", f"{op} is predicted to run {now.path}, as before; {reasons_changed(was, now)}"


def _contradiction(op: str, ran: Ran) -> str:
    shown = f"its kernels are those of {ran.path}" if ran.path is not None else "its kernels match no listed path"
    return f"{op} is claimed to run {ran.claimed}, {shown}"


def _bad_numerics(ran: Ran) -> str:
    return BAD_NUMERICS[ran.numerics] + (f", that without {ran.ignored}: an ignored feature" if ran.ignored else "")


def _numerics(op: str, was: Ran, now: Ran) -> Found:
    if now.numerics == was.numerics:
        if now.ignored != was.ignored:
            yield "reason_changed", f"{op} still {_bad_numerics(now)}; before: {was.ignored or 'no ignored feature'}"
        return
    match now.numerics:
        case "wrong" | "unwritten":
            yield "wrong_result", f"{op} {_bad_numerics(now)}; before: {was.numerics}"
        case "ok" if was.numerics == "unchecked":
            yield "added", f"{op}'s result is checked now, and right"
        case "ok":
            yield "recovered", f"{op}'s result is right; before: {was.numerics}"
        case "unchecked":
            yield "removed", f"{op}'s result is no longer checked; before: {was.numerics}"
        case never:
            assert_never(never)


def _fallback(op: str, was: Ran, now: Ran, old: Paths, new: Paths, moved: int) -> Found:
    """A fast path lost, or newly passed over without a word, or only the reasons changed.

    Silence that the baseline has too was accepted with it: what counts are the faster paths that are new to it.
    """
    fell, falls = is_fallback(was, old), is_fallback(now, new)
    silent = [path for path in unannounced(now, new) if path not in unannounced(was, old)]
    here, there = named(now.path), named(was.path)
    if moved > 0:
        yield _loss(was.path, f"{op} left {there} for {here}", silent, now, new)
    elif falls and not fell:
        lost = new[0]
        if was.path == now.path:
            fact = f"{op} still runs {here}, although {lost} now stands before it in the engine's list"
        else:
            fact = f"{op} went from {there} to {here}, although {lost} now stands first in the engine's list"
        yield _loss(lost, fact, silent, now, new)
    elif silent:
        lost = silent[0]
        fact = f"{op} still runs {here}" if was.path == now.path else f"{op} runs {here} (before, {there})"
        if was.explains(lost):
            fact += f" instead of {lost}, and no longer says why{why(now, lost).removeprefix(' without a word')}"
        else:
            fact += f", although {lost} now stands before it in the engine's list{why(now, lost)}"
        yield "silent_fallback", fact
    elif fell and not falls and was.path == now.path:
        yield "reason_changed", f"{op} still runs {here}, now first in the engine's list; before, {old[0]} was"
    elif was.path == now.path and was.rejections != now.rejections:
        yield "reason_changed", f"{op} still runs {here}; {reasons_changed(was, now)}"


def _loss(lost: str | None, fact: str, silent: Sequence[str], now: Ran, new: Paths) -> tuple[Kind, str]:
    """`silent`: the faster paths, in order, that are newly passed over without a word."""
    if lost is not None and lost not in new:
        # Nobody can turn down what is not listed: what tells is whether all that is left was turned down.
        said = is_fallback(now, new) and not unannounced(now, new)
        return "announced_fallback" if said else "silent_fallback", f"{fact}: the engine no longer lists it"
    if not silent:
        return "announced_fallback", f"{fact}{why(now, lost)}"
    if lost not in silent:
        lost, fact = silent[0], f"{fact} and passed over {silent[0]}"
    return "silent_fallback", f"{fact}{why(now, lost)}"


def _graph(op: str, was: Ran, now: Ran) -> Found:
    got, missed = FULLNESS[now.graph_got], FULLNESS[now.graph_asked] - FULLNESS[now.graph_got]
    got_before, missed_before = FULLNESS[was.graph_got], FULLNESS[was.graph_asked] - FULLNESS[was.graph_got]
    fact = f"{op} runs {_graphs(now)}; before, {_graphs(was)}"
    if got < got_before or missed > max(missed_before, 0):
        yield "graph_downgrade", fact
    elif got > got_before:
        yield "improved", fact
    elif was.graph_asked != now.graph_asked or was.ungraphed != now.ungraphed:
        yield "reason_changed", fact


def _graphs(ran: Ran) -> str:
    words = {"eager": "without a CUDA graph", "partial": "partly in a CUDA graph", "full": "in a CUDA graph"}
    if ran.graph_asked == ran.graph_got:
        return words[ran.graph_got]
    return f"{words[ran.graph_got]} ({'; '.join((f'asked: {ran.graph_asked}', *map(str, ran.ungraphed)))})"
