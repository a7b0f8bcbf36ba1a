"""The whole verdict for programs; the rows are in the tables, under the same cell and op."""

import json
from collections.abc import Iterator

import msgspec

from kaudit import __version__
from kaudit.report.judged import Judged, Report

SCHEMA = 1


def render(report: Report) -> Iterator[str]:
    """One JSON object. `passed` and `waivers` are null for a diff."""
    verdict = report.verdict
    whole: dict[str, object] = {
        "schema": SCHEMA,
        "kaudit": __version__,
        "before": msgspec.to_builtins(report.before.header.stamp),
        "after": msgspec.to_builtins(report.after.header.stamp),
        "context": report.context,
        "passed": report.passed,
        "changes": [_change(judged) for judged in report.judged()],
        "rules": msgspec.to_builtins(report.rules()),
        "unmet": list(map(str, report.unmet)),
        "waivers": verdict
        and {
            "stale": [waiver.model_dump(mode="json") for waiver in verdict.stale],
            "expired": [waiver.model_dump(mode="json") for waiver in verdict.expired],
        },
    }
    # ASCII survives whatever encoding stdout has.
    yield from json.dumps(whole, indent=1).split("\n")


def _change(judged: Judged) -> dict[str, object]:
    change = judged.change
    return {
        "kind": change.kind,
        "cell": change.cell,
        "op": change.op,
        "sentence": change.sentence,
        "judgement": judged.judgement,
        "waiver": judged.waiver and judged.waiver.model_dump(mode="json"),
    }
