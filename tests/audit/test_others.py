"""What other runs of a cell showed, beside the first."""

from kaudit.journal import Entry
from kaudit.observation import WHOLE_CELL, Crashed, Kernel, Other, Outcome, Ran, Row, Unseen
from kaudit.others import results
from kaudit.runs import ALONE
from kaudit.wire import Measure

FAST = Ran("fast", (Kernel("k", "gemm", "gemm", 1),))
SLOW = Ran("slow", (Kernel("s", "gemm", "gemm", 1),))


def entry(run: str, **outcomes: Outcome) -> Entry:
    """Of cell "c"; `whole` stands for a row of the whole cell."""
    rows = tuple(Row("c", WHOLE_CELL if op == "whole" else op, outcome) for op, outcome in outcomes.items())
    return Entry("c", rows, tuple(Measure("c", row.op, len(run)) for row in rows), run)


def others(*entries: Entry) -> dict[str, tuple[Other, ...]]:
    rows, _ = results(entries)
    return {row.op: row.others for row in rows}


def test_runs_that_agree_leave_no_trace() -> None:
    rows, measures = results([entry("", a=FAST), entry("2", a=FAST), entry(ALONE, a=FAST)])
    assert rows == [Row("c", "a", FAST)]
    assert measures == [Measure("c", "a", 0)]


def test_each_differing_outcome_stands_once_in_the_order_of_the_runs() -> None:
    seen = {ALONE: SLOW, "10": Unseen("x"), "": FAST, "3": SLOW, "2": SLOW}
    entries = [entry(run, a=outcome) for run, outcome in seen.items()]
    assert others(*entries) == {
        "a": (Other("again", "a", SLOW), Other("again", "a", Unseen("x")), Other("alone", "a", SLOW))
    }


def test_a_crash_in_another_run_stands_with_the_first_row() -> None:
    assert others(entry("", a=FAST, b=FAST), entry("2", whole=Crashed("SIGSEGV"))) == {
        "a": (Other("again", WHOLE_CELL, Crashed("SIGSEGV")),),
        "b": (),
    }


def test_what_ran_in_another_run_stands_with_the_crash() -> None:
    assert others(entry("", whole=Crashed("SIGSEGV")), entry(ALONE, a=FAST, b=SLOW)) == {
        WHOLE_CELL: (Other("alone", "a", FAST), Other("alone", "b", SLOW))
    }


def test_an_op_that_is_gone_or_new_in_another_run_is_told() -> None:
    assert others(entry("", a=FAST, b=FAST), entry("2", a=FAST)) == {"a": (), "b": (Other("again", "b", None),)}
    assert others(entry("", a=FAST), entry("2", a=FAST, b=SLOW)) == {"a": (Other("again", "b", SLOW),)}
