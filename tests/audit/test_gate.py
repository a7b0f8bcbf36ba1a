from datetime import date
from pathlib import Path

import pytest
from tables_for_tests import CELL

from kaudit.change import Change, Kind
from kaudit.errors import UserError
from kaudit.gate import verdict
from kaudit.policy import Policy, Rule, Waiver, load_policy, load_waivers
from kaudit.report import text

TODAY = date(2026, 6, 30)


def change(kind: Kind, cell: str = CELL, op: str = "attention") -> Change:
    return Change(kind, cell, op, f"{op} did it", None, None)


def waiver(cells: str = "*", kind: Kind = "silent_fallback", op: str | None = None, expires: date = TODAY) -> Waiver:
    return Waiver(cells=cells, op=op, kind=kind, because="known", expires=expires)


SILENT = change("silent_fallback")


def test_without_a_policy_losses_fail_and_the_rest_is_tolerated() -> None:
    rerouted = change("rerouted")
    found = verdict([SILENT, rerouted], Policy(), (), TODAY)
    assert (found.failing, found.tolerated, found.passed) == ((SILENT,), (rerouted,), False)
    assert verdict([rerouted], Policy(), (), TODAY).passed
    assert verdict([], Policy(), (), TODAY).passed


def test_a_waiver_holds_on_its_last_day_and_not_after() -> None:
    last = waiver()
    assert verdict([SILENT], Policy(), [last], TODAY).waived == ((SILENT, last),)
    after = verdict([SILENT], Policy(), [last], date(2026, 7, 1))
    assert (after.failing, after.expired, after.stale) == ((SILENT,), (last,), ())


@pytest.mark.parametrize(
    "other",
    [waiver("prefill/*"), waiver(kind="crashed"), waiver(op="rms_norm"), waiver(CELL.upper()), waiver("decode")],
)
def test_a_waiver_for_something_else_is_stale(other: Waiver) -> None:
    found = verdict([SILENT], Policy(), [other], TODAY)
    assert (found.failing, found.stale) == ((SILENT,), (other,))


def test_of_two_waivers_the_first_is_named_and_neither_is_stale() -> None:
    first, second = waiver("decode/*"), waiver("*/b8q1k4096", op="attention")
    found = verdict([SILENT], Policy(), [first, second], TODAY)
    assert (found.waived, found.stale) == (((SILENT, first),), ())


def test_a_waiver_of_what_is_tolerated_anyway_is_not_stale() -> None:
    found = verdict([change("rerouted")], Policy(), [waiver(kind="rerouted")], TODAY)
    assert (len(found.tolerated), found.waived, found.stale) == (1, (), ())


def test_the_last_rule_that_matches_decides() -> None:
    policy = Policy(
        rules=(
            Rule(cells="decode/*", fail_on=("rerouted",), because="decode is what we sell"),
            Rule(cells="*", op="rms_norm", fail_on=(), because="its fallback is as fast"),
        )
    )
    found = verdict([SILENT, change("rerouted"), change("crashed", op="rms_norm")], policy, (), TODAY)
    assert [change.kind for change in found.failing] == ["rerouted"]
    assert [change.kind for change in found.tolerated] == ["silent_fallback", "crashed"]


def test_the_verdict_in_words() -> None:
    old = waiver("prefill/*", expires=date(2026, 1, 1))
    found = verdict([SILENT, change("crashed"), change("crashed")], Policy(), [waiver(), old, waiver("mixed/*")], TODAY)
    assert text.summary(found) == "gate failed: 2 crashed; 1 waived, 0 tolerated"
    assert list(text.waivers(found)) == [
        "waived until 2026-06-30: 1 silent_fallback in *: known",
        "stale waiver: no silent_fallback in mixed/* any more; remove it (known)",
        "waiver expired on 2026-01-01: silent_fallback in prefill/*; renew or remove it (known)",
    ]
    assert text.summary(verdict([], Policy(), (), TODAY)) == "gate passed: 0 waived, 0 tolerated"


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "file.yaml"
    path.write_text(content)
    return path


def test_the_documented_files_load(tmp_path: Path) -> None:
    policy = load_policy(
        written(
            tmp_path,
            """
            fail_on: [crashed]
            rules:
              - {cells: "decode/*", op: attention, fail_on: [silent_fallback], because: sold}
            """,
        )
    )
    assert policy.fail_on == ("crashed",)
    assert policy.rules[0].fail_on == ("silent_fallback",)
    waivers = load_waivers(
        written(
            tmp_path,
            """
            - {cells: "*", kind: hung, because: bare, expires: 2026-12-31}
            - {cells: "*", kind: hung, because: quoted, expires: "2026-12-31"}
            """,
        )
    )
    assert {waiver.expires for waiver in waivers} == {date(2026, 12, 31)}


def test_all_faults_of_a_file_come_at_once_each_with_its_place(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        - {cells: "*", kind: slient_fallback, because: x, expires: 2026-12-31}
        - {cells: "*", kind: hung, because: "", expires: soon}
        - {cells: "*", kind: hung, until: 2026-12-31, because: x}
        """,
    )
    with pytest.raises(UserError) as error:
        load_waivers(path)
    places = [fault.removeprefix(f"{path}: ").split(":")[0] for fault in error.value.faults]
    assert places == ["[0].kind", "[1].because", "[1].expires", "[2].expires", "[2].until"]


@pytest.mark.parametrize("content", ["fail_on: [", "fail_on: everything", "- 1", "\x00", "rules: [{fail_on: []}]"])
def test_what_is_no_policy_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"file\.yaml"):
        load_policy(written(tmp_path, content))


def test_empty_files_say_nothing(tmp_path: Path) -> None:
    empty = written(tmp_path, "# no waiver is needed any more")
    assert load_waivers(empty) == ()
    assert load_policy(empty) == Policy()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load_policy(tmp_path / "none.yaml")
