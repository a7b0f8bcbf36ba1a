"""SARIF 2.1.0, for code scanning: a rule per kind of change, a result per change that somebody should see."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kaudit import __version__
from kaudit.change import KINDS
from kaudit.glossary import CHANGES
from kaudit.policy import DEFAULT_FAIL_ON
from kaudit.report.judged import Judged, Report, Severity

Json = dict[str, object]

EXPECTATION = "expectation"
_RULES = (*KINDS, EXPECTATION)


def render(report: Report) -> Iterator[str]:
    """Waived changes are suppressed results, with the waiver's reason. What loses nothing is left out."""
    stamp = report.after.header.stamp
    run: Json = {
        "tool": {"driver": {"name": "kaudit", "version": __version__, "rules": list(_rules())}},
        # Runs of other engines and devices must not replace this one in code scanning.
        "automationDetails": {"id": f"kaudit/{stamp.engine}/{stamp.device.name}/"},
        "columnKind": "unicodeCodePoints",
        "results": list(_results(report)),
    }
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
    # ASCII survives whatever encoding stdout has.
    yield from json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1).split("\n")


def _rules() -> Iterator[Json]:
    for kind, meaning in KINDS.items():
        decided, do = CHANGES[kind]
        yield _rule(kind, meaning, f"Decided: {decided}. To do: {do}.", "error" if kind in DEFAULT_FAIL_ON else "note")
    do = "To do: restore what the matrix's expect: rule asks for, or change the rule."
    yield _rule(EXPECTATION, "the table does not meet an expectation of the matrix", do, "error")


def _rule(name: str, meaning: str, more: str, level: Severity) -> Json:
    return {
        "id": name,
        "shortDescription": {"text": f"{name.replace('_', ' ')}: {meaning}"},
        "help": {"text": f"{meaning}. {more}"},
        "defaultConfiguration": {"level": level},
    }


def _results(report: Report) -> Iterator[Json]:
    places = report.lines_of_file()
    uri = _uri(report.file)
    times: Counter[str] = Counter()
    for judged in report.judged():
        change = judged.change
        if judged.severity != "none":
            where = _location(uri, places.get((change.cell, change.op), 1))
            where["logicalLocations"] = [{"name": change.op, "fullyQualifiedName": f"{change.cell} {change.op}"}]
            yield {
                **_result(change.kind, judged.severity, f"{change.sentence} ({change.cell})", where),
                "partialFingerprints": _prints(times, change.kind, change.cell, change.op),
                "suppressions": _suppressions(judged),
            }
    for text in map(str, report.unmet):
        yield {
            **_result(EXPECTATION, "error", text, _location(uri, 1)),
            "partialFingerprints": _prints(times, EXPECTATION, text),
            # All results of a run have it, or none.
            "suppressions": [],
        }


def _result(rule: str, level: Severity, message: str, where: Json) -> Json:
    return {
        "ruleId": rule,
        "ruleIndex": _RULES.index(rule),
        "level": level,
        "message": {"text": message},
        "locations": [where],
    }


def _location(uri: str, line: int) -> Json:
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}}


def _suppressions(judged: Judged) -> list[Json]:
    if judged.waiver is None:
        return []
    reason = f"waived until {judged.waiver.expires}: {judged.waiver.because}"
    return [{"kind": "external", "status": "accepted", "justification": reason}]


def _prints(times: Counter[str], *identity: str) -> Json:
    """Of what changed, not how or in which line, so that an alert stays the same alert; under GitHub's name for it."""
    digest = hashlib.sha256("\0".join(identity).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    times[digest] += 1
    return {"primaryLocationLineHash": f"{digest}:{times[digest]}"}


def _uri(path: Path) -> str:
    if path.is_absolute():
        return path.as_uri()
    # A colon in the first segment would make it a scheme.
    return quote(os.fsencode(path.as_posix()))
