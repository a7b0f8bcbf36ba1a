import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from jsonschema import Draft7Validator
from reports_for_tests import GOLDEN, WAIVER, gated, golden, reports
from tables_for_tests import CELL, announced, ran, table

from golden.loss import LOST
from kaudit.change import KINDS
from kaudit.policy import Policy
from kaudit.report.judged import Report
from kaudit.report.sarif import render


@cache
def validator() -> Draft7Validator:
    """Of the OASIS schema, formats such as uri included."""
    schema = json.loads((GOLDEN.parent / "schemas" / "sarif-2.1.0.json").read_text())
    return Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)


def run(report: Report) -> dict[str, Any]:
    log = json.loads("\n".join(render(report)))
    validator().validate(log)
    (only,) = log["runs"]
    return only


def test_the_validator_is_no_yes_man() -> None:
    assert not validator().is_valid({"version": "2.1.0", "runs": [{"results": []}]})


def test_a_result_points_at_the_row_and_names_cell_and_op() -> None:
    (result,) = run(gated(table(ran("flash")), table(ran("eager"))))["results"]
    assert (result["ruleId"], result["level"], result["suppressions"]) == ("silent_fallback", "error", [])
    assert list(KINDS)[result["ruleIndex"]] == "silent_fallback"
    (location,) = result["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "after.jsonl"}, "region": {"startLine": 2}}
    assert location["logicalLocations"][0]["fullyQualifiedName"] == f"{CELL} attention"


def test_what_is_waived_is_suppressed_with_the_reason() -> None:
    (result,) = run(gated(table(ran("flash")), table(ran("eager")), waivers=[WAIVER]))["results"]
    (suppression,) = result["suppressions"]
    assert suppression["justification"] == "waived until 2026-06-30: known"


def test_what_loses_nothing_is_left_out_unless_the_policy_fails_on_it() -> None:
    tables = table(ran("eager", announced("flash"))), table(ran("flash"))
    assert run(gated(*tables))["results"] == []
    (result,) = run(gated(*tables, Policy(fail_on=("improved",))))["results"]
    assert (result["ruleId"], result["level"]) == ("improved", "error")


def test_an_alert_stays_the_same_alert_where_only_the_words_change() -> None:
    before = table(ran("flash"))
    prints = [
        run(gated(before, table(after)))["results"][0]["partialFingerprints"]
        for after in (ran("eager"), ran("split"), ran("eager", announced("split")))
    ]
    assert prints[0] == prints[1] == prints[2]


def test_a_table_anywhere_has_a_uri() -> None:
    report = gated(table(ran("flash")), table(ran("eager")))
    for file, uri in (("a b/ü:1.jsonl", "a%20b/%C3%BC%3A1.jsonl"), ("/a b.jsonl", "file:///a%20b.jsonl")):
        moved = Report(report.before, report.after, Path(file), (), report.changes, 5, report.verdict)
        (result,) = run(moved)["results"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


@given(reports())
@settings(max_examples=40)
def test_every_text_makes_a_valid_log_with_distinct_fingerprints(report: Report) -> None:
    results = run(report)["results"]
    prints = [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]
    assert len(set(prints)) == len(prints)
    failing = [result for result in results if result["level"] == "error"]
    assert len(failing) == (len(report.told) if report.verdict else 0) + len(report.unmet)


def test_the_golden_loss() -> None:
    results = run(golden())["results"]
    assert len(results) == LOST
    lines = (GOLDEN / "decode-h200-silent.jsonl").read_text().splitlines()
    for result in results:
        (location,) = result["locations"]
        row = json.loads(lines[location["physicalLocation"]["region"]["startLine"] - 1])
        assert location["logicalLocations"][0]["fullyQualifiedName"] == f"{row['cell']} {row['op']}"
