"""Predictions: kept apart from observations everywhere, and called by their name in every output."""

import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables_for_tests import CELL, PATHS, asked, header, ran, table
from test_cli import kaudit

from kaudit.diff import PREDICTED, changes, comparable
from kaudit.errors import UserError
from kaudit.expect import unmet
from kaudit.gate import verdict
from kaudit.matrix.rules import Expectation, When
from kaudit.observation import Other, Outcome, Predicted, Refused, Rejection, Row, Said, Skipped, Unseen
from kaudit.policy import Policy
from kaudit.report.html import Timed, of_one_table, of_two_tables
from kaudit.sweep import table_name
from kaudit.table import Device, Table, encoded, read, write
from kaudit.transition import between

DEVICE = Device("predicted sm_90", "sm_90", 0, "none", predicted=True)
OTHER = CELL.replace("h32x8x128", "h8x8x64")
FAST, SLOW = Predicted("flash"), Predicted("split", (asked("flash"),))


def predicted(*outcomes: Outcome, op: str = "attention", **more: object) -> Table:
    return table(*outcomes, op=op, **{"device": DEVICE, **more})


@pytest.mark.parametrize(
    ("mixed", "fault"),
    [
        (Table.of(header(device=DEVICE), [Row(CELL, "attention", ran())]), "an observed row in a table of predictions"),
        (table(FAST), "a predicted row in a table of observations"),
        (
            Table.of(header(), [Row(CELL, "attention", ran(), (Other("again", "attention", FAST),))]),
            "a predicted row in a table of observations",
        ),
    ],
)
def test_a_table_that_mixes_them_is_refused(mixed: Table, fault: str, tmp_path: Path) -> None:
    write(tmp_path / "mixed.jsonl", mixed)
    with pytest.raises(UserError, match=f"mixed.jsonl:2: {fault}; the two are never mixed"):
        read(tmp_path / "mixed.jsonl")


def test_a_table_of_predictions_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = predicted(SLOW)
    write(tmp_path / "t.jsonl", whole)
    assert read(tmp_path / "t.jsonl") == whole
    assert b"predicted" not in encoded(table(ran()))
    assert table_name(whole.header.stamp) == "reference@1-predicted-sm_90.jsonl"


@pytest.mark.parametrize("across", [False, True])
def test_a_prediction_is_never_held_against_an_observation(across: bool) -> None:
    with pytest.raises(UserError, match=r"the first table is predicted, the second observed, .*take two that are"):
        comparable(predicted(FAST), table(ran()), across)
    with pytest.raises(UserError, match="the first table is observed, the second predicted"):
        comparable(table(ran()), predicted(FAST), across)
    with pytest.raises(ValueError, match="held against a prediction"):
        list(between("attention", FAST, ran(), PATHS["attention"], PATHS["attention"]))


@pytest.mark.parametrize(
    ("was", "now", "kind", "sentence"),
    [
        (
            FAST,
            SLOW,
            "predicted_fallback",
            "attention is predicted to run split instead of flash: head_dim=96, needs one of 64, 128",
        ),
        (SLOW, FAST, "improved", "attention is predicted to run flash instead of split"),
        (
            SLOW,
            Predicted("split", (Rejection("flash", "asked", (Said("no"),)),)),
            "reason_changed",
            "attention is predicted to run split, as before; asked about flash: no; "
            "before: head_dim=96, needs one of 64, 128",
        ),
    ],
)
def test_kinds_of_change(was: Predicted, now: Predicted, kind: str, sentence: str) -> None:
    assert [(one.kind, one.sentence) for one in changes(predicted(was), predicted(now))] == [(kind, sentence)]


def test_another_order_of_the_list() -> None:
    """As between an H100 and a B200: each has another first."""
    turned = {"attention": ("split", "flash", "eager")}
    first = predicted(FAST), predicted(Predicted("split"), paths=turned)
    assert [(one.kind, one.sentence) for one in changes(*first)] == [
        ("rerouted", "attention is predicted to run split instead of flash, of the same rank")
    ]
    passed_over = predicted(Predicted("flash", (asked("split"),)), paths=turned)
    assert [(one.kind, one.sentence) for one in changes(predicted(FAST), passed_over)] == [
        (
            "predicted_fallback",
            "attention is predicted to run flash, as before, although split now stands first in the engine's list: "
            "head_dim=96, needs one of 64, 128",
        )
    ]
    assert [one.kind for one in changes(predicted(FAST), predicted(FAST, paths=turned))] == ["predicted_fallback"]


@pytest.mark.parametrize(
    ("was", "now", "kinds"),
    [
        (predicted(Unseen("no driver"), op="*"), predicted(SLOW), ["recovered", "predicted_fallback"]),
        (predicted(FAST), predicted(Unseen("no driver"), op="*"), ["unseen"]),
        (predicted(FAST), predicted(Refused("none is valid"), op="*"), ["refused"]),
        (predicted(), predicted(SLOW), ["predicted_fallback"]),
        (predicted(), predicted(FAST), ["added"]),
        (predicted(FAST), predicted(), ["removed"]),
    ],
)
def test_from_and_to_what_is_no_prediction(was: Table, now: Table, kinds: list[str]) -> None:
    found = list(changes(was, now))
    assert [change.kind for change in found] == kinds
    assert not any("runs" in change.sentence for change in found)


def test_the_gate_fails_on_a_fast_path_that_is_predicted_lost() -> None:
    found = verdict(changes(predicted(FAST), predicted(SLOW)), Policy(), [], date.today())
    assert [change.kind for change in found.failing] == ["predicted_fallback"]


@pytest.mark.parametrize("form", ["text", "markdown", "github", "junit", "sarif", "json", "prometheus"])
def test_every_format_says_that_it_is_predicted(form: str, tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write(before, predicted(FAST))
    write(after, predicted(SLOW))
    said = kaudit("gate", before, after, "--format", form)
    assert said.returncode == 1
    assert "predicted" in said.stdout
    assert PREDICTED in said.stderr
    # Silence is of a run: none of these may be said of what was not run.
    assert "silent_fallback" not in (
        said.stdout if form != "sarif" else json.dumps(json.loads(said.stdout)["runs"][0]["results"])
    )


def test_show_summary_and_story_say_that_it_is_predicted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, predicted(SLOW))
    shown = kaudit("show", path, "--columns", "outcome,path,fallback,launches,why").stdout.splitlines()[1]
    assert shown.split(maxsplit=3) == ["predicted", "split", "predicted", shown.split(maxsplit=3)[3]]
    assert "flash (asked): head_dim=96" in shown
    story = kaudit("show", path, "--cell", CELL).stdout
    assert "reference 1 predicted for sm_90, not observed: nothing was run" in story
    assert "  × flash\n      asked: head_dim=96, needs one of 64, 128\n  → split\n  · eager: not reached" in story
    assert "predicted by the engine's selector: nothing ran, no kernel was seen" in story


def test_the_page_says_that_it_is_predicted() -> None:
    assert "attention is predicted to run flash; nothing was run" in of_one_table(Timed("t", predicted(FAST), {}))
    both = predicted(FAST), predicted(SLOW)
    page = of_two_tables(*(Timed("t", one, {}) for one in both), list(changes(*both)), comparable(*both), False)
    assert "predicted, not observed" in page
    assert "attention is predicted to run split instead of flash" in page


@pytest.mark.parametrize(
    ("wanted", "met"),
    [({"path": "split"}, True), ({"path": "flash"}, False), ({"family": "fa2"}, False), ({"most_launches": 9}, False)],
)
def test_a_prediction_meets_a_path_and_shows_no_kernels(wanted: dict[str, object], met: bool) -> None:
    missed = list(unmet(predicted(SLOW), [Expectation(when=When(()), **wanted)]))
    assert (not missed) is met
    assert met or "saw path split, predicted, and no kernels" in str(missed[0])


_reasons = st.builds(Rejection, st.sampled_from(PATHS["attention"]), st.just("asked"), st.just((Said("no"),)))
_outcomes = st.builds(
    Predicted, st.sampled_from([*PATHS["attention"], "unlisted"]), st.lists(_reasons, max_size=2).map(tuple)
)
_stopped = st.one_of(
    st.builds(Unseen, st.just("a")), st.builds(Refused, st.just("b")), st.builds(Skipped, st.just("c"))
)


@st.composite
def predictions(draw: st.DrawFn) -> Table:
    paths = {"attention": tuple(draw(st.permutations(PATHS["attention"])))}
    cells = draw(st.lists(st.sampled_from([CELL, OTHER]), unique=True))
    rows = [
        Row(cell, "attention", draw(_outcomes)) if draw(st.booleans()) else Row(cell, "*", draw(_stopped))
        for cell in cells
    ]
    return Table.of(header(paths, device=DEVICE), rows)


@given(predictions(), predictions())
def test_any_two_tables_of_predictions(before: Table, after: Table) -> None:
    found = list(changes(before, after))
    may = {
        "predicted_fallback",
        "improved",
        "rerouted",
        "reason_changed",
        "recovered",
        "unseen",
        "refused",
        "removed",
        "added",
    }
    assert {change.kind for change in found} <= may
    assert not list(changes(before, before))
    if before.rows != after.rows:
        assert found
