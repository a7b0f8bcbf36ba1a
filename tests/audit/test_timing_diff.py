"""Slower and faster: found where it is so, and nobody accused where it is not."""

import random
from itertools import combinations

import pytest
from times_for_tests import OPS, cells, samples, table, timed

from kaudit.change import KINDS
from kaudit.errors import UserError
from kaudit.observation import WHOLE_CELL
from kaudit.timing import Timing
from kaudit.timing_diff import timed_changes
from kaudit.timing_rank import holm, larger


def by_hand(one: list[float], other: list[float]) -> float:
    """Over all ways to deal the samples out: how often `one` wins as many pairs."""

    def wins(first: tuple[float, ...], second: list[float]) -> int:
        return sum(a > b for a in first for b in second)

    both = one + other
    seen = wins(tuple(one), other)
    dealt = list(combinations(both, len(one)))
    return sum(wins(hand, [x for x in both if x not in hand]) >= seen for hand in dealt) / len(dealt)


def test_the_rank_test_is_exact() -> None:
    chance = random.Random(5)
    for few, many in ((3, 4), (4, 4), (5, 3)):
        one, other = ([chance.random() for _ in range(size)] for size in (few, many))
        assert larger(one, other) == pytest.approx(by_hand(one, other))
    # 10 above 10: one order of 184,756.
    assert larger(range(10, 20), range(10)) == pytest.approx(1 / 184_756)
    assert larger(range(10), range(10, 20)) == 1.0
    # The tails of many samples are sums of whole numbers, not of what is left of large ones.
    assert larger(range(100, 200), range(100)) == pytest.approx(1 / 9.0548514656103e58)


def test_equal_samples_and_ties_are_no_evidence() -> None:
    assert larger([1.0] * 20, [1.0] * 20) == 1.0
    assert larger([], [1.0]) == 1.0


def test_holm_holds_what_bonferroni_holds_and_goes_on() -> None:
    assert holm([0.004, 0.02, 0.006], 0.012) == [True, False, True]
    assert holm([0.02, 0.5], 0.01) == [False, False]


def test_of_300_cells_that_are_as_before_none_is_accused() -> None:
    ids = cells(300)
    for seed in range(10):
        changes, told = timed_changes(table(ids), table(ids), timed(2 * seed, ids), timed(2 * seed + 1, ids))
        assert not changes
        assert told[0].startswith("times: 900 ops and whole cells compared")


def test_ten_percent_more_is_found_in_each_of_30_cells_and_in_no_other() -> None:
    ids = cells(300)
    slow = ids[::10]
    changes, _ = timed_changes(table(ids), table(ids), timed(1, ids), timed(2, ids, 1.1, slow))
    # The call took longer, too: where its ops are named, it is not.
    assert {(change.cell, change.op) for change in changes} == {(cell, op) for cell in slow for op in OPS}
    assert {change.kind for change in changes} == {"slower"}
    assert changes[0].sentence.startswith("attention takes 1.1")
    assert "time in its kernels" in changes[0].sentence
    assert changes[0].before is not None and changes[0].after is not None
    back, _ = timed_changes(table(ids), table(ids), timed(2, ids, 1.1, slow), timed(1, ids))
    assert {change.kind for change in back} == {"faster"}


def test_what_is_below_the_margin_is_not_told_however_sure() -> None:
    ids = cells(20)
    changes, _ = timed_changes(table(ids), table(ids), timed(1, ids), timed(2, ids, 1.03, ids))
    assert not changes


def test_other_work_that_slows_most_of_the_runs_accuses_nobody() -> None:
    ids = cells(2)
    was, now = timed(1, ids), timed(2, ids)
    key = ids[0], "attention"
    now[key] = Timing("cupti", tuple(3 * sample if n % 5 else sample for n, sample in enumerate(samples(9, 100.0))))
    assert larger(now[key].samples_us, was[key].samples_us) < 1e-4
    assert not timed_changes(table(ids), table(ids), was, now)[0]


def test_a_call_that_takes_longer_although_no_op_does_is_told_as_that() -> None:
    ids = cells(3)
    now = timed(2, ids)
    now[ids[1], WHOLE_CELL] = Timing("events", samples(3, 200.0), sm_mhz=(1965, 1980))
    (change,) = timed_changes(table(ids), table(ids), timed(1, ids), now)[0]
    assert (change.kind, change.cell, change.op) == ("slower", ids[1], WHOLE_CELL)
    assert change.sentence.startswith("the cell takes 1.4")
    assert change.after is not None and change.after.cell == ids[1]


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ({"sm_mhz": (1305, 1410)}, "more than 5% apart"),
        ({"held_back": ("hardware thermal slowdown",)}, "held back in one of the sweeps: hardware thermal slowdown"),
        ({"sm_mhz": (), "clocks_unread": "NVMLError_NoPermission"}, "clocks were not read: NVMLError_NoPermission"),
        ({"sm_mhz": ()}, "clocks were not read: without a reason"),
    ],
)
def test_times_under_other_conditions_are_counted_and_not_compared(conditions: dict[str, object], why: str) -> None:
    ids = cells(4)
    now = timed(2, ids, 1.5, ids, **conditions)
    changes, told = timed_changes(table(ids), table(ids), timed(1, ids), now)
    assert not changes
    assert told[0].startswith("times: 0 ops")
    assert told[1].startswith("times of 12 not compared: ") and why in told[1]
    with pytest.raises(UserError, match="none are left to judge by") as error:
        timed_changes(table(ids), table(ids), timed(1, ids), now, judged=True)
    assert why in error.value.faults[0]


def test_times_without_those_of_their_cell_are_under_conditions_that_nobody_knows() -> None:
    ids = cells(2)
    now = {key: one for key, one in timed(2, ids, 1.5, ids).items() if key[1] != WHOLE_CELL}
    changes, told = timed_changes(table(ids), table(ids), timed(1, ids), now)
    assert not changes
    assert "times of 4 not compared: nothing is known of the GPU's clocks" in told


def test_a_power_cap_is_no_reason_not_to_compare() -> None:
    ids = cells(4)
    now = timed(2, ids, 1.5, ids, held_back=("power cap",))
    assert len(timed_changes(table(ids), table(ids), timed(1, ids), now)[0]) == 8


def test_what_was_not_timed_is_told_and_not_taken_for_equal() -> None:
    ids = cells(2)
    now = timed(2, ids)
    now[ids[0], "attention"] = Timing(unknown="two of 30 runs were not seen")
    del now[ids[1], "rms_norm"]
    _, told = timed_changes(table(ids), table(ids), timed(1, ids), now)
    assert "times of 1 not compared: not timed: two of 30 runs were not seen" in told
    assert "times of 1 not compared: only one of the tables has them" in told
    with pytest.raises(UserError, match="second table has no times"):
        timed_changes(table(ids), table(ids), timed(1, ids), {})


def test_a_faster_call_is_good_news_and_a_slower_one_is_worse_than_a_refusal() -> None:
    kinds = list(KINDS)
    assert kinds.index("slower") < kinds.index("refused") < kinds.index("faster")
