"""JUnit XML: one suite per op, one test per (cell, op) that changed, one for all of those that did not."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kaudit.observation import WHOLE_CELL
from kaudit.report.judged import Judged, Report
from kaudit.wording import count

# Everything but the Char production of XML 1.0: no reference can stand for these either.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> Iterator[str]:
    """A test fails where a change fails the gate, and is skipped where all that would fail it is waived.

    What XML 1.0 cannot hold is replaced by �. Every suite has a test of the unchanged rows, since many readers take a
    report without tests for a broken one.
    """
    ops: defaultdict[str, defaultdict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for judged in report.judged():
        ops[judged.change.op][judged.change.cell].append(judged)
    root = Element("testsuites", name="kaudit diff" if report.verdict is None else "kaudit gate")
    told = {(judged.change.cell, judged.change.op) for judged in report.judged()}
    unchanged = Counter(op for cell, op in report.after.rows if not told & {(cell, op), (cell, WHOLE_CELL)})
    for op in sorted(ops.keys() | unchanged.keys()):
        _suite(root, "whole cells" if op == WHOLE_CELL else op, ops[op], unchanged[op])
    if report.unmet:
        _expectations(root, list(map(str, report.unmet)))
    indent(root)
    # ASCII with character references survives whatever encoding stdout has.
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii").split("\n")


def _suite(root: Element, name: str, cells: dict[str, list[Judged]], unchanged: int) -> None:
    suite = _child(root, "testsuite", name=name)
    for cell, judged in cells.items():
        _case(_child(suite, "testcase", classname=name, name=cell), judged)
    rows = _child(suite, "testcase", classname=name, name="unchanged rows")
    _child(rows, "system-out").text = f"{count(unchanged, 'row')} did not change"
    _count(suite)


def _case(case: Element, judged: Sequence[Judged]) -> None:
    failing = [one.change for one in judged if one.judgement == "failing"]
    waived = [(one.change, one.waiver) for one in judged if one.waiver is not None]
    said = _legal("\n".join(f"{one.change.kind} ({one.judgement}): {one.change.sentence}" for one in judged))
    if failing:
        _child(case, "failure", type=failing[0].kind, message=failing[0].sentence).text = said
        return
    if waived:
        (change, waiver), *_ = waived
        _child(case, "skipped", message=f"{change.kind} waived until {waiver.expires}: {waiver.because}")
    _child(case, "system-out").text = said


def _expectations(root: Element, unmet: Sequence[str]) -> None:
    suite = _child(root, "testsuite", name="expectations")
    for line in unmet:
        case = _child(suite, "testcase", classname="expectations", name=line)
        _child(case, "failure", type="expectation", message=line)
    _count(suite)


def _count(suite: Element) -> None:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    suite.set("errors", "0")


def _child(parent: Element, tag: str, **attributes: str) -> Element:
    return SubElement(parent, tag, {name: _legal(value) for name, value in attributes.items()})


def _legal(text: str) -> str:
    return _ILLEGAL.sub("�", text)
