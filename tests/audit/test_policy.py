"""Policy and waiver files: what they may say, and their faults: all at once, each at its line and column."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaudit.errors import UserError
from kaudit.policy import Policy, load_policy, load_waivers


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


def faults(load: Callable[[Path], object], path: Path) -> list[str]:
    with pytest.raises(UserError) as error:
        load(path)
    return [fault.removeprefix(f"{path}:") for fault in error.value.faults]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("fail_on: [", "1:11: not YAML: while parsing a flow node"),
        ("fail_on: everything", '1:10: fail_on is "everything", needs a list, as in [a, b]'),
        ("fail_on: [crashd]", '1:11: fail_on "crashd" is not one of wrong_result, crashed, hung, '),
        ("fail_on: [hung]\nfail_on: []", '2:1: key "fail_on" stands on line 1 already; write it once'),
        ("- 1", "1:1: the file is a list, needs a mapping, as in {key: value}"),
        ("\x00", "1:1: not YAML: special characters are not allowed; remove the character"),
        ("rules: [{fail_on: []}]", '1:9: "because" is missing; add it'),
        ("rules:\n- {fail_on: [], because: x, cels: x}", '2:29: unknown key "cels"; did you mean "cells"?'),
    ],
)
def test_a_fault_of_a_policy_stands_at_its_place(tmp_path: Path, content: str, fault: str) -> None:
    (found,) = faults(load_policy, written(tmp_path, content))
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("written_as", "instead", "fault"),
    [
        ("kind: hung", "kind: hang", '1:22: kind "hang" is not one of wrong_result, crashed, hung, '),
        ("kind: hung", "kind: hung, kind: crashed", '1:28: key "kind" stands on line 1 already; write it once'),
        ("kind: hung", "kind: hung, op: no", '1:32: no without quotes is a truth value in YAML 1.1; write "no"'),
        ("because: x", 'because: " "', '1:37: because is " ", needs some text'),
        ("because: x", "because: 1", "1:37: because is 1, needs text; put it in quotes if text is meant"),
        ("2026-12-31", "2026-02-30", '1:49: "2026-02-30" is no day; write one as in 2026-12-31'),
        ("2026-12-31", "20261231", "1:49: expires is 20261231, needs a day, as in 2026-12-31"),
        ("2026-12-31", "2026-12-31 10:00:00", '1:49: "2026-12-31 10:00:00" is no day; write one as in 2026-12-31'),
        (
            "expires: 2026-12-31",
            "until: 2026-12-31, expires: 2026-12-31",
            '1:40: unknown key "until"; it may be: cells',
        ),
        (", expires: 2026-12-31", "", '1:3: "expires" is missing; add it'),
        ('"*"', "*/paged16/*", "1:12: not YAML: while scanning an alias expected alphabetic or numeric character"),
    ],
)
def test_a_fault_of_a_waiver_stands_at_its_place(tmp_path: Path, written_as: str, instead: str, fault: str) -> None:
    waivers = '- {cells: "*", kind: hung, because: x, expires: 2026-12-31}'
    (found,) = faults(load_waivers, written(tmp_path, waivers.replace(written_as, instead)))
    assert found.startswith(fault)


def test_all_faults_of_a_file_come_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        - {cells: "*", kind: slient_fallback, because: x, expires: 2026-12-31}
        - {cells: "*", kind: hung, because: "", expires: soon}
        - {cells: "*", kind: hung, until: 2026-12-31, because: x}
        - 3
        """,
    )
    places = [fault.split(" ")[0] for fault in faults(load_waivers, path)]
    assert places == ["2:30:", "3:45:", "3:58:", "4:11:", "4:36:", "5:11:"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(alphabet="ac:[]{}-&*!|\"'#,~ \n0126.no\u2028", max_size=60), st.sampled_from([load_policy, load_waivers])
)
def test_any_text_is_read_or_a_user_error(tmp_path: Path, content: str, load: Callable[[Path], object]) -> None:
    path = written(tmp_path, content)
    try:
        load(path)
    except UserError as error:
        assert all("\n" not in fault and fault.startswith(f"{path}:") for fault in error.faults)


def test_empty_files_say_nothing(tmp_path: Path) -> None:
    empty = written(tmp_path, "# no waiver is needed any more")
    assert load_waivers(empty) == ()
    assert load_policy(empty) == Policy()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load_policy(tmp_path / "none.yaml")
