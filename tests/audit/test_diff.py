import pytest
from hypothesis import given
from tables_for_tests import CELL, PATHS, announced, asked, header, outcomes, ran, rans, table, tables

from kaudit.change import KINDS
from kaudit.diff import changes, comparable
from kaudit.errors import UserError
from kaudit.observation import Crashed, Hung, Kernel, Outcome, Ran, Refused, Rejection, Row, Skipped, Unmet, Unseen
from kaudit.table import Device, Table


def moved(before: Outcome, after: Outcome, old: tuple[str, ...] | None = None, new: tuple[str, ...] | None = None):
    """Kind to sentence, for one op of one cell."""
    usual = PATHS["attention"]
    was = table(before, paths={"attention": old or usual})
    now = table(after, paths={"attention": new or usual})
    found = list(changes(was, now))
    kinds = {change.kind: change.sentence for change in found}
    assert len(kinds) == len(found), "one kind, one change"
    return kinds


@given(tables())
def test_a_table_differs_not_from_itself(one: Table) -> None:
    assert list(changes(one, one)) == []


@given(tables(), tables())
def test_what_differs_is_never_nothing_either_way(one: Table, other: Table) -> None:
    differing = {key for key in one.rows.keys() | other.rows.keys() if one.rows.get(key) != other.rows.get(key)}
    for before, after in ((one, other), (other, one)):
        found = list(changes(before, after))
        assert {cell for cell, _ in differing} <= {change.cell for change in found}
        assert all(change.kind in KINDS and "None" not in change.sentence for change in found)
        assert [change.cell for change in found] == sorted(change.cell for change in found)


@given(rans, rans)
def test_every_op_that_ran_otherwise_is_a_change(was: Ran, now: Ran) -> None:
    assert bool(list(changes(table(was), table(now)))) == (was != now)


@given(outcomes)
def test_problems_of_new_cells_are_not_called_added(outcome: Outcome) -> None:
    kinds = {change.kind for change in changes(table(), table(outcome))}
    assert kinds == {"added"} or "added" not in kinds


def test_silent_fallback() -> None:
    assert moved(ran("flash"), ran("eager", asked("flash"))) == {
        "silent_fallback": "attention left flash for eager without a word (asked: head_dim=96, needs one of 64, 128)"
    }
    assert moved(ran("flash"), ran("split")) == {"silent_fallback": "attention left flash for split without a word"}


def test_announced_fallback_quotes_the_reason_of_the_lost_path() -> None:
    now = ran("eager", announced("flash", "no flash here"), announced("split", "nor split"))
    assert moved(ran("split", announced("flash")), now) == {
        "announced_fallback": "attention left split for eager: nor split"
    }


def test_what_is_said_of_another_path_does_not_announce_the_loss_of_this_one() -> None:
    of_flash = announced("flash", "no flash here")
    assert moved(ran("split", of_flash), ran("eager", of_flash, asked("split"))) == {
        "silent_fallback": "attention left split for eager without a word"
        " (announced only: flash: no flash here; asked: head_dim=96, needs one of 64, 128)"
    }


def test_a_lost_reason_is_a_silent_fallback() -> None:
    assert moved(ran("split", announced("flash")), ran("split", asked("flash"))) == {
        "silent_fallback": "attention still runs split instead of flash, and no longer says why"
        " (asked: head_dim=96, needs one of 64, 128)"
    }


def test_an_announcement_without_a_reason_is_silence() -> None:
    empty = Rejection("flash", "announced", ())
    assert moved(ran("flash"), ran("split", empty)).keys() == {"silent_fallback"}


def test_from_bad_to_worse_is_a_silent_fallback_again() -> None:
    assert moved(ran("split"), ran("eager")).keys() == {"silent_fallback"}


def test_kernels_of_no_path_rank_last() -> None:
    found = moved(ran("eager"), ran(None, claimed="eager"))
    assert found == {
        "contradiction": "attention is claimed to run eager, its kernels match no listed path",
        "silent_fallback": "attention left eager for kernels of no listed path without a word",
    }


def test_found_its_voice() -> None:
    assert moved(ran("split"), ran("split", announced("flash", "too wide"))) == {
        "reason_changed": "attention still runs split; announced about flash: too wide; before: nothing"
    }


def test_other_reasons() -> None:
    found = moved(ran("split", asked("flash")), ran("split", Rejection("flash", "asked", (Unmet("sm", "75", "80"),))))
    assert found == {
        "reason_changed": "attention still runs split; asked about flash: sm=75, needs 80;"
        " before: head_dim=96, needs one of 64, 128"
    }


def test_improved_and_yet_no_longer_says_why() -> None:
    assert moved(ran("eager", announced("flash")), ran("split")).keys() == {"improved", "silent_fallback"}


def test_a_faster_path_enters_the_list_and_is_not_taken() -> None:
    row = ran("flash")
    assert moved(row, row, ("flash", "eager"), ("fa4", "flash", "eager")) == {
        "silent_fallback": "attention still runs flash, although fa4 now stands before it in the engine's list"
        " without a word"
    }


def test_a_faster_path_enters_the_list_and_is_taken() -> None:
    assert moved(ran("flash"), ran("fa4"), ("flash", "eager"), ("fa4", "flash", "eager")).keys() == {"improved"}


def test_a_path_taken_off_the_list_is_still_lost() -> None:
    assert moved(ran("flash"), ran("split"), ("flash", "split"), ("split",)) == {
        "silent_fallback": "attention left flash for split: the engine no longer lists it"
    }


def test_a_fallback_that_the_list_no_longer_shows_is_said() -> None:
    row = ran("split")
    assert moved(row, row, ("flash", "split"), ("split",)) == {
        "reason_changed": "attention still runs split, now first in the engine's list; before, flash was"
    }


def test_a_renamed_path_is_of_the_same_rank() -> None:
    was, now = ran("flash"), ran("fa2", kernels=ran("flash").kernels)
    assert moved(was, now, ("flash", "eager"), ("fa2", "eager")) == {
        "rerouted": "attention runs fa2 instead of flash, of the same rank, with the same kernels"
    }


def test_a_reordered_list_calls_neither_path_slower() -> None:
    assert moved(ran("flash"), ran("split"), ("flash", "split"), ("split", "flash")).keys() == {"rerouted"}


def kernel(name: str = "void ns::fwd<128, true>(int)", **more: object) -> tuple[Kernel, ...]:
    return (Kernel(**{"name": name, "family": "fa2", "role": "attention", "count": 1, **more}),)


@pytest.mark.parametrize(
    ("now", "kind", "sentence"),
    [
        (kernel("other"), "rerouted", "attention runs other instead of fwd"),
        (kernel("void ns::fwd<64, true>(int)"), "rerouted", "attention runs other variants of fwd"),
        (kernel() + kernel("combine"), "rerouted", "attention also runs combine"),
        ((), "rerouted", "attention no longer runs fwd"),
        (kernel(grid=(8, 1, 4)), "relaunched", "attention: fwd grid unknown → 8×1×4"),
        (kernel(count=3), "relaunched", "attention: fwd count 1 → 3"),
        (kernel() + kernel(registers=32), "relaunched", "attention: fwd count 1 → 2"),
        (kernel(family="fa3"), "relaunched", "attention: fwd family fa2 → fa3"),
    ],
)
def test_kernels_of_the_same_rank(now: tuple[Kernel, ...], kind: str, sentence: str) -> None:
    assert moved(ran(kernels=kernel()), ran(kernels=now)) == {kind: sentence}


def test_wrong_results() -> None:
    assert moved(ran(numerics="ok"), ran(numerics="wrong")) == {
        "wrong_result": "attention gives a wrong result; before: ok"
    }
    assert moved(ran(numerics="wrong"), ran(numerics="ok")).keys() == {"recovered"}
    assert moved(ran(numerics="ok"), ran()).keys() == {"removed"}
    assert moved(ran(), ran(numerics="ok")).keys() == {"added"}


def test_graphs() -> None:
    full = ran(graph_asked="full", graph_got="full")
    assert moved(full, ran(graph_asked="full", graph_got="partial")) == {
        "graph_downgrade": "attention runs partly in a CUDA graph (asked: full); before, in a CUDA graph"
    }
    assert moved(ran(), ran(graph_asked="full")).keys() == {"graph_downgrade"}
    assert moved(ran(graph_asked="full"), full).keys() == {"improved"}
    assert moved(ran(graph_asked="full"), ran()).keys() == {"reason_changed"}


def test_why_there_is_no_graph_is_in_the_sentence() -> None:
    full = ran(graph_asked="full", graph_got="full")
    past, deep = Unmet("batch", "65", "at most 64"), Unmet("q_len", "4", "at most 1")
    assert moved(full, ran(graph_asked="full", ungraphed=(past, deep))) == {
        "graph_downgrade": "attention runs without a CUDA graph (asked: full; batch=65, needs at most 64;"
        " q_len=4, needs at most 1); before, in a CUDA graph"
    }
    assert moved(ran(graph_asked="full", ungraphed=(past,)), ran(graph_asked="full", ungraphed=(deep,))) == {
        "reason_changed": "attention runs without a CUDA graph (asked: full; q_len=4, needs at most 1);"
        " before, without a CUDA graph (asked: full; batch=65, needs at most 64)"
    }


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (ran(), Refused("no"), {"refused"}),
        (ran(), Crashed("SIGSEGV"), {"crashed"}),
        (ran(), Hung(60), {"hung"}),
        (ran(), Unseen("no sentinel"), {"unseen"}),
        (ran(), Skipped("not expressible"), {"removed"}),
        (Crashed("SIGSEGV"), Refused("no"), {"improved"}),
        (Crashed("SIGSEGV"), Crashed("SIGFPE"), {"reason_changed"}),
        (Refused("no"), Crashed("SIGSEGV"), {"crashed"}),
        (Hung(60), ran(), {"recovered"}),
        (Unseen("?"), ran("eager"), {"recovered", "silent_fallback"}),
    ],
)
def test_outcomes(before: Outcome, after: Outcome, kinds: set[str]) -> None:
    assert moved(before, after).keys() == kinds


def rows(*found: Row) -> Table:
    return Table.of(header(), found)


BOTH_RAN = rows(Row(CELL, "attention", ran()), Row(CELL, "rms_norm", ran("eager")))
CRASHED = rows(Row(CELL, "*", Crashed("SIGSEGV")))


def test_a_cell_that_crashes_is_one_change() -> None:
    (change,) = changes(BOTH_RAN, CRASHED)
    assert (change.kind, change.op, change.before, change.after) == ("crashed", "*", None, CRASHED.rows[CELL, "*"])
    assert change.sentence == "the cell crashed (SIGSEGV); before, 2 of 2 ops ran"


def test_a_cell_that_runs_again_is_one_change_and_its_problems() -> None:
    found = list(changes(CRASHED, BOTH_RAN))
    assert [(change.kind, change.op) for change in found] == [("recovered", "*"), ("silent_fallback", "rms_norm")]
    assert found[0].sentence == "the cell runs; before, it crashed (SIGSEGV)"


def test_cells_and_ops_that_come_and_go() -> None:
    one, nothing = rows(Row(CELL, "attention", ran())), rows()
    assert [change.kind for change in changes(nothing, one)] == ["added"]
    assert [change.kind for change in changes(one, nothing)] == ["removed"]
    assert [change.sentence for change in changes(one, BOTH_RAN)] == [
        "rms_norm runs eager instead of fused without a word"
    ]
    assert [change.sentence for change in changes(BOTH_RAN, one)] == ["rms_norm is gone; before, it ran eager"]


def test_across_looks_only_at_shared_cells() -> None:
    other = CELL.replace("decode", "prefill")
    one, both = rows(Row(CELL, "attention", ran())), rows(Row(CELL, "attention", ran()), Row(other, "*", Hung(1)))
    assert list(changes(one, both, across=True)) == []
    assert list(comparable(one, both, across=True)) == ["1 cell compared; 0 only before, 1 only after"]


def test_incomparable_tables_are_refused_by_field() -> None:
    h100 = Device("NVIDIA H100", "sm_90", 114, "570.1")
    with pytest.raises(
        UserError, match=r"device name NVIDIA H200 → NVIDIA H100, device sm_count 132 → 114, matrix dig"
    ):
        comparable(table(ran()), table(ran(), device=h100, matrix_digest="def"))
    assert comparable(table(ran()), table(ran(), device=h100), across=True)[:2] == (
        "device name NVIDIA H200 → NVIDIA H100",
        "device sm_count 132 → 114",
    )
    with pytest.raises(UserError, match="share no cell"):
        comparable(table(ran()), table(ran(), cell=CELL.replace("decode", "mixed")), across=True)


def test_circumstances_are_told() -> None:
    after = table(ran(), revision="2", versions={"torch": "2.11"}, environment={"NVIDIA_TF32_OVERRIDE": "0"})
    assert comparable(table(ran()), after) == (
        "revision 1 → 2",
        "torch 2.10 → 2.11",
        "NVIDIA_TF32_OVERRIDE (unset) → 0",
    )


def test_a_reason_lost_for_one_path_is_not_covered_by_what_is_said_of_another() -> None:
    before = table(ran("eager", announced("flash"), announced("split")))
    (change,) = changes(before, table(ran("eager", announced("flash"))))
    assert change.kind == "silent_fallback"
    assert change.sentence.startswith("attention still runs eager instead of split, and no longer says why")
