"""Diff, gate and reports of cells whose runs differ: what the baseline saw in some run is no new loss, it flaps."""

from datetime import date

import pytest
from msgspec.structs import replace
from tables_for_tests import CELL, PATHS, announced, header, ran

from kaudit.change import Change, Kind
from kaudit.diff import changes
from kaudit.findings import findings
from kaudit.gate import verdict
from kaudit.observation import WHOLE_CELL, Crashed, Other, Outcome, Row, Unseen
from kaudit.policy import Policy
from kaudit.report.columns import COLUMNS
from kaudit.report.story import story
from kaudit.report.summary import summary
from kaudit.report.verdicts import LOOKS, OF_ONE, OF_TWO
from kaudit.table import Table

FAST, SLOW, SPLIT = ran("flash"), ran("eager"), ran("split", announced("flash"))


def table(first: Outcome, *others: Other, op: str = "attention") -> Table:
    return Table.of(header(), [Row(CELL, op, first, others)])


def again(outcome: Outcome | None, op: str = "attention") -> Other:
    return Other("again", op, outcome)


def alone(outcome: Outcome | None, op: str = "attention") -> Other:
    return Other("alone", op, outcome)


def kinds(before: Table, after: Table) -> list[Kind]:
    return [change.kind for change in changes(before, after)]


def only(before: Table, after: Table) -> Change:
    (change,) = changes(before, after)
    return change


def test_what_another_run_of_the_baseline_saw_is_no_new_loss() -> None:
    change = only(table(FAST, again(SLOW)), table(SLOW, again(FAST)))
    assert change.kind == "flapping"
    assert change.sentence.endswith("but another run of the baseline saw that, too")
    assert verdict([change], Policy(), (), date(2026, 1, 1)).passed


def test_a_crash_that_the_baseline_saw_in_another_run_flaps() -> None:
    before = table(FAST, again(Crashed("SIGSEGV"), WHOLE_CELL))
    assert kinds(before, table(Crashed("SIGSEGV"), again(FAST), op=WHOLE_CELL)) == ["flapping"]
    assert kinds(before, table(Crashed("SIGABRT"), op=WHOLE_CELL)) == ["crashed"]


def test_what_nobody_saw_excuses_nothing() -> None:
    assert kinds(table(FAST, again(Unseen("lost"))), table(Unseen("lost"))) == ["unseen"]


def test_what_a_fresh_process_does_excuses_nothing_in_company() -> None:
    assert kinds(table(FAST, alone(SLOW)), table(SLOW)) == ["silent_fallback"]


def test_what_came_and_went_and_has_come_to_stay_is_a_loss() -> None:
    before = table(FAST, again(SLOW))
    repeated = replace(header(), repeat=3)
    stayed = Table.of(repeated, [Row(CELL, "attention", SLOW)])
    assert [change.kind for change in changes(before, stayed, across=True)] == ["silent_fallback"]
    flaps = Table.of(repeated, [Row(CELL, "attention", SLOW, (again(FAST),))])
    assert [change.kind for change in changes(before, flaps, across=True)] == ["flapping"]


def test_a_new_loss_says_that_it_is_not_in_every_run() -> None:
    change = only(table(FAST), table(SLOW, alone(FAST)))
    assert change.kind == "silent_fallback"
    assert change.sentence.endswith("; not in every run")
    change = only(table(FAST, again(SPLIT)), table(SLOW))
    assert change.kind == "silent_fallback"
    assert change.sentence.endswith("; the baseline's runs differ, too")


def test_a_loss_in_another_run_is_a_loss() -> None:
    change = only(table(FAST), table(FAST, again(SLOW)))
    assert (change.kind, change.op) == ("silent_fallback", "attention")
    assert change.sentence.startswith("in another run, attention left flash for eager")
    assert kinds(table(FAST), table(FAST, alone(Crashed("SIGSEGV"), WHOLE_CELL))) == ["crashed"]
    assert kinds(table(FAST), table(FAST, alone(Unseen("lost")))) == ["unseen"]


def test_what_another_run_shows_without_loss_flaps() -> None:
    assert kinds(table(SLOW), table(SLOW, alone(FAST))) == ["flapping"]
    assert kinds(table(FAST), table(FAST, again(None))) == ["flapping"]
    assert kinds(table(FAST, again(SLOW)), table(FAST)) == ["flapping"]
    assert not kinds(table(FAST, again(SLOW)), table(FAST, again(SLOW)))


def test_a_new_cell_is_judged_by_all_its_runs() -> None:
    nothing = Table.of(header(), [])
    assert kinds(nothing, table(FAST, again(SLOW))) == ["added", "silent_fallback"]


@pytest.mark.parametrize(
    ("other", "kind", "sentence"),
    [
        (alone(SLOW), "order_dependent", "alone in a fresh process, attention left flash for eager without a word"),
        (again(SLOW), "flapping", "in another run, attention left flash for eager without a word"),
        (again(None), "flapping", "in another run, attention did not run"),
        (again(Crashed("SIGSEGV"), WHOLE_CELL), "flapping", "in another run, the cell crashed (SIGSEGV)"),
        (alone(Unseen("lost")), "uncompared", "alone in a fresh process, attention could not be seen: lost"),
    ],
)
def test_each_differing_run_is_a_finding(other: Other, kind: str, sentence: str) -> None:
    found = table(FAST, other)
    assert [(one.kind, one.sentence) for one in findings(found)] == [(kind, sentence)]
    assert f"  {kind}: {sentence}" in list(story(found, CELL))
    (row,) = found.rows.values()
    assert COLUMNS["varies"](row, PATHS["attention"]) == f"{kind}: {sentence}"
    assert kind in OF_ONE
    assert kind in LOOKS
    assert "flapping" in OF_TWO


def test_a_summary_says_how_much_was_run_again() -> None:
    swept = Table.of(header(), [Row(CELL, "attention", FAST)])
    assert not [line for line in summary(swept) if line.startswith("run again")]
    checked = Table(replace(swept.header, sample=8, repeat=3), swept.rows)
    assert "run again: 8 cells alone, every cell 3 times; 0 cells came to something else" in list(summary(checked))
