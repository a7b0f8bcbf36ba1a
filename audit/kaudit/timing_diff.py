"""Which ops got slower or faster between two tables, beyond what their samples scatter: pure.

An op is slower if its samples are larger than the baseline's times 1 + LEAST, by a one-sided rank test, and the least
of them is, by half of that; faster, if that holds the other way round. The tests of all cells are one family: with a
chance of LEVEL at most any of them accuses by mere chance. Samples of one run are no wholly independent draws: that is
what the margin is for, and the look at the least of them, to which other work on the machine adds the least.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kaudit.change import Change, Kind
from kaudit.errors import UserError, told_in
from kaudit.observation import WHOLE_CELL, Row
from kaudit.table import Table, cells_of
from kaudit.timing import Timing, Timings, digits
from kaudit.timing_rank import holm, larger
from kaudit.transition import subject
from kaudit.wording import count

LEAST = 0.05
"""Of the baseline's time: what is slower or faster by less is not told. On a GPU whose clocks are free two runs of one
kernel come out some percent apart."""

LEVEL = 0.01
"""Chance of any false accusation in a whole diff, where all times are as before."""

CLOCKS_APART = 0.05
"""Of the SM clock: times that were taken further apart are not compared."""

CROSSED = frozenset({"hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake"})
"""What may have held back only one of two runs. A power cap is the lot of every busy GPU, and shows in its clock."""

Key = tuple[str, str]
Judged = tuple[Key, Kind]


@told_in("docs/timing.md")
def timed_changes(
    before: Table, after: Table, was: Timings, now: Timings, judged: bool = False
) -> tuple[list[Change], list[str]]:
    """The changes, in table order, and what a reader should know of the comparison: a line each.

    Raises UserError where either table has no times; and, where a gate has to judge by them, if none are compared.
    """
    for which, timings in (("first", was), ("second", now)):
        if not timings:
            raise UserError(
                f"--timing: the {which} table has no times beside it; "
                "put its .measure.parquet there, or sweep it with --timing"
            )
    unlike: Counter[str] = Counter()
    compared: list[Key] = []
    for key in sorted(was.keys() & now.keys()):
        if why := _unlike(was[key], now[key], was.get((key[0], WHOLE_CELL)), now.get((key[0], WHOLE_CELL))):
            unlike[why] += 1
        else:
            compared.append(key)
    told = [
        f"times: {count(len(compared), 'op')} and whole cells compared; slower and faster by {LEAST:.0%} or more only, "
        f"and with a chance of {LEVEL:.0%} for any false one"
    ]
    told += [f"times of {number} not compared: {why}" for why, number in sorted(unlike.items())]
    if alone := len(was.keys() ^ now.keys()):
        told.append(f"times of {alone} not compared: only one of the tables has them")
    if judged and not compared:
        raise UserError(f"--timing: {'; '.join(told[1:])}; none are left to judge by: sweep both sides alike")
    old, new = cells_of(before), cells_of(after)
    changes = [
        Change(kind, *key, _sentence(key[1], was[key], now[key]), _row(old, key), _row(new, key))
        for key, kind in _judged(compared, was, now)
    ]
    return changes, told


def _judged(compared: list[Key], was: Timings, now: Timings) -> Iterator[Judged]:
    tests: list[Judged] = []
    chances: list[float] = []
    for key in compared:
        old, new = was[key].samples_us, now[key].samples_us
        tests += [(key, "slower"), (key, "faster")]
        chances += [_beyond(new, old), _beyond(old, new)]
    found = [test for test, held in zip(tests, holm(chances, LEVEL), strict=True) if held]
    of_ops = {(cell, kind) for (cell, op), kind in found if op != WHOLE_CELL}
    # Where an op is named, that its cell moved along says nothing more.
    yield from (((cell, op), kind) for (cell, op), kind in found if op != WHOLE_CELL or (cell, kind) not in of_ops)


def _beyond(samples: Sequence[float], others: Sequence[float]) -> float:
    """The chance of samples that are larger than others by the margin, as these are, if they were not."""
    if min(samples) <= (1 + LEAST / 2) * min(others):
        return 1.0
    return larger(samples, [(1 + LEAST) * other for other in others])


def _unlike(was: Timing, now: Timing, whole_was: Timing | None, whole_now: Timing | None) -> str:
    """Why two times are not to be compared; "" where they are. The conditions are those of the whole cells."""
    for timing in (was, now):
        if not timing.samples_us:
            return f"not timed: {timing.unknown}"
        if not timing.median_us:
            return "no kernel is launched"
    if was.clock != now.clock:
        return f"by {was.clock} in one table, by {now.clock} in the other"
    if was.clock == "wall":
        return ""
    if whole_was is None or whole_now is None:
        return "nothing is known of the GPU's clocks"
    for whole in (whole_was, whole_now):
        if whole.clocks_unread or not whole.sm_mhz:
            return f"the GPU's clocks were not read: {whole.clocks_unread or 'without a reason'}"
    if held := sorted(CROSSED & (set(whole_was.held_back) ^ set(whole_now.held_back))):
        return f"the GPU was held back in one of the sweeps: {', '.join(held)}"
    old, new = whole_was.sm_mhz, whole_now.sm_mhz
    if min(old) > max(new) * (1 + CLOCKS_APART) or min(new) > max(old) * (1 + CLOCKS_APART):
        return "taken at SM clocks that are more than 5% apart"
    return ""


def _sentence(op: str, was: Timing, now: Timing) -> str:
    old, new = was.median_us, now.median_us
    assert old and new, "only timed ops are judged"
    by = {"cupti": "time in its kernels", "events": "CUDA events, the host's time counts", "wall": "wall time"}
    times = f"{digits(old)} → {digits(new)} µs, {len(was.samples_us)} and {len(now.samples_us)} runs"
    return f"{subject(op)} takes {new / old:.2f}× as long ({times}; {by[now.clock]})"


def _row(cells: Mapping[str, tuple[Row, ...]], key: Key) -> Row | None:
    rows = cells.get(key[0], ())
    return next((row for row in rows if row.op == key[1]), rows[0] if rows and key[1] == WHOLE_CELL else None)
