from xml.etree import ElementTree

from hypothesis import given
from reports_for_tests import WAIVER, gated, golden, reports
from tables_for_tests import CELL, ran, table

from golden.loss import CELLS, CHANGED, LOST
from kaudit.expect import Miss
from kaudit.observation import Crashed
from kaudit.report.judged import Report
from kaudit.report.junit import render


def parsed(report: Report) -> ElementTree.Element:
    return ElementTree.fromstring("\n".join(render(report)).encode("ascii"))


def test_a_failure_names_its_kind_and_says_its_sentence() -> None:
    root = parsed(gated(table(ran("flash")), table(ran("eager")), unmet=(Miss("", "no family fa3"),)))
    case, unchanged = root.findall("testsuite[@name='attention']/testcase")
    failure = case.find("failure")
    assert failure is not None
    assert (case.get("name"), failure.get("type")) == (CELL, "silent_fallback")
    assert failure.get("message") == "attention left flash for eager without a word"
    assert unchanged.findtext("system-out") == "0 rows did not change"
    expected = root.find("testsuite[@name='expectations']/testcase")
    assert expected is not None
    assert expected.get("name") == "no family fa3"


def test_what_is_waived_is_skipped_with_the_reason() -> None:
    root = parsed(gated(table(ran("flash")), table(ran("eager")), waivers=[WAIVER]))
    (skipped,) = root.iter("skipped")
    assert skipped.get("message") == "silent_fallback waived until 2026-06-30: known"


def test_a_gate_without_changes_still_has_a_test_that_passes() -> None:
    root = parsed(gated(table(ran("flash")), table(ran("flash"))))
    assert [suite.attrib for suite in root] == [
        {"name": "attention", "tests": "1", "failures": "0", "skipped": "0", "errors": "0"}
    ]


def test_a_change_of_a_whole_cell_leaves_none_of_its_ops_unchanged() -> None:
    root = parsed(gated(table(Crashed("SIGSEGV"), op="*"), table(ran("flash"))))
    assert [suite.get("name") for suite in root] == ["whole cells"]


@given(reports())
def test_every_text_makes_xml_and_the_counts_add_up(report: Report) -> None:
    root = parsed(report)
    for suite in root:
        assert suite.get("tests") == str(len(suite))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))
    failing = {(change.cell, change.op) for change in report.told} if report.verdict else ()
    assert len(list(root.iter("failure"))) == len(failing) + len(report.unmet)


def test_the_golden_loss() -> None:
    suite = parsed(golden()).find("testsuite[@name='attention']")
    assert suite is not None
    assert (suite.get("failures"), suite.get("tests")) == (str(LOST), str(CHANGED + 1))
    assert suite.findtext("testcase[@name='unchanged rows']/system-out") == f"{CELLS - CHANGED} rows did not change"
