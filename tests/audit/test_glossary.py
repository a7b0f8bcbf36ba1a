"""Every word of a report is explained."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from kaudit.change import KINDS
from kaudit.errors import UserError
from kaudit.findings import FindingKind
from kaudit.glossary import CHANGES, FINDINGS, OUTCOMES, entries, look_up
from kaudit.observation import Outcome

ROOT = Path(__file__).parents[2]


def test_each_kind_outcome_and_finding_has_its_entry() -> None:
    assert set(CHANGES) == set(KINDS)
    assert set(FINDINGS) == set(get_args(FindingKind))
    assert set(OUTCOMES) == {outcome.__name__.lower() for outcome in get_args(Outcome)}


def test_each_entry_names_a_page_that_says_the_word() -> None:
    for name, entry in entries():
        assert f"`{name}`" in (ROOT / entry.page).read_text()


@pytest.mark.parametrize("spelt", ["silent_fallback", "silent-fallback", "Silent fallback"])
def test_a_word_may_be_spelt_as_in_prose(spelt: str) -> None:
    name, (entry,) = look_up(spelt)
    assert (name, entry.what) == ("silent_fallback", "kind of change")


@pytest.mark.parametrize("printed", ["fallback", "announced", "SILENT", "asked", "UNCLASSIFIED"])
def test_what_a_table_prints_is_a_word(printed: str) -> None:
    _, (entry,) = look_up(printed)
    assert entry.what == "word"


def test_an_outcome_and_the_change_to_it_are_both_told() -> None:
    assert [entry.what for entry in look_up("crashed")[1]] == ["outcome", "kind of change"]


@pytest.mark.parametrize(("word", "nearest"), [("silnt", "silent_fallback"), ("crash", "crashed"), ("", "ran")])
def test_an_unknown_word_gets_the_nearest(word: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"nearest: .*{nearest}"):
        look_up(word)


def test_explain_fits_80_columns() -> None:
    for name in dict.fromkeys(name for name, _ in entries()):
        command = [sys.executable, "-m", "kaudit", "explain", name]
        if name in ("unseen", "silent_fallback"):
            told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
            assert told.startswith(f"{name} (")
            assert max(map(len, told.splitlines())) <= 80
