from datetime import date

import pytest
from tables_for_tests import CELL

from kaudit.change import Change, Kind
from kaudit.gate import verdict
from kaudit.policy import Policy, Rule, Waiver
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
