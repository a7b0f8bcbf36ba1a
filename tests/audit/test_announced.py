"""What makes a fallback announced: one rule, for a table alone and for what is new in a diff."""

from hypothesis import given
from tables_for_tests import PATHS, announced, asked, ran, rans, table
from test_diff import moved

from kaudit.diff import changes
from kaudit.observation import Ran, is_silent_fallback, unannounced

LIST = PATHS["attention"]


def test_each_path_before_the_one_that_ran_needs_a_reason_of_its_own() -> None:
    assert unannounced(ran("eager", announced("flash"), asked("split")), LIST) == ("split",)
    assert unannounced(ran("split", announced("flash")), LIST) == ()
    assert unannounced(ran("flash"), LIST) == ()
    assert unannounced(ran(None, announced("flash"), announced("split")), LIST) == ("eager",)


@given(rans, rans)
def test_what_a_table_newly_shows_as_silent_is_so_in_the_diff_too(was: Ran, now: Ran) -> None:
    paths = PATHS["attention"]
    if is_silent_fallback(now, paths) and not is_silent_fallback(was, paths):
        assert "silent_fallback" in {change.kind for change in changes(table(was), table(now))}
    if not is_silent_fallback(now, paths):
        assert "silent_fallback" not in {change.kind for change in changes(table(was), table(now))}


def test_a_path_passed_over_without_a_word_is_not_covered_by_the_reason_of_the_lost_one() -> None:
    assert moved(ran("flash"), ran("eager", announced("flash", "no flash here"), asked("split"))) == {
        "silent_fallback": "attention left flash for eager and passed over split without a word"
        " (announced only: flash: no flash here; asked: head_dim=96, needs one of 64, 128)"
    }


def test_silence_that_the_baseline_has_too_does_not_make_an_announced_loss_silent() -> None:
    assert moved(ran("split"), ran("eager", announced("split", "nor split"))) == {
        "announced_fallback": "attention left split for eager: nor split"
    }


def test_a_faster_path_enters_the_list_before_a_fallback_without_a_word() -> None:
    row = ran("split", announced("flash"))
    assert moved(row, row, ("flash", "split"), ("fa4", "flash", "split")) == {
        "silent_fallback": "attention still runs split, although fa4 now stands before it in the engine's list"
        " without a word (announced only: flash: head_dim is 96)"
    }


def test_a_path_taken_off_the_list_is_announced_where_all_that_is_left_was_turned_down() -> None:
    lists = ("flash", "split", "eager"), ("fa4", "split", "eager")
    now = ran("eager", announced("fa4"), announced("split"))
    assert moved(ran("flash"), now, *lists).keys() == {"announced_fallback"}
    assert moved(ran("flash"), ran("eager", announced("fa4")), *lists).keys() == {"silent_fallback"}
