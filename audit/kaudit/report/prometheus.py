"""Gauges of the newer table, in the text format that node_exporter's textfile collector reads."""

from collections import Counter
from collections.abc import Iterator, Mapping

from kaudit.observation import Chosen, Predicted, Ran, Unmet, Unseen, is_fallback, is_silent_fallback
from kaudit.report.judged import Report

SAID = "said"
"""The axis of reasons that the engine gave in its own words."""
UNKNOWN = "unknown"
"""The axis of fallbacks for which there is no reason, announced or asked."""

Labels = tuple[tuple[str, str], ...]


def render(report: Report) -> Iterator[str]:
    """Engine, device and matrix label every sample, so that several tables can share a folder."""
    stamp = report.after.header.stamp
    table = (("engine", stamp.engine), ("device", stamp.device.name), ("matrix", stamp.matrix))
    ops = report.after.header.paths
    fallbacks: Counter[Labels] = Counter()
    # An op without any has a 0: an absent sample alerts nobody.
    silent: Counter[Labels] = Counter({(*table, ("op", op)): 0 for op in ops})
    predicted: Counter[Labels] = Counter()
    unseen = set()
    for row in report.after.rows.values():
        match row.outcome:
            case Ran() as ran if is_fallback(ran, ops[row.op]):
                fallbacks.update((*table, ("op", row.op), ("axis", axis)) for axis in _axes(ran))
                silent[*table, ("op", row.op)] += is_silent_fallback(ran, ops[row.op])
            case Predicted() as chosen if is_fallback(chosen, ops[row.op]):
                predicted.update((*table, ("op", row.op), ("axis", axis)) for axis in _axes(chosen))
            case Unseen():
                unseen.add(row.cell)
    once = "once for each axis that a reason against a faster path names"
    if stamp.device.predicted:
        what = f"Rows for which a path is predicted that is not the first of their op, {once}; nothing was run."
        yield from _gauge("kaudit_predicted_fallbacks", what, predicted)
    else:
        yield from _gauge("kaudit_fallbacks", f"Rows that are not on the first path of their op, {once}.", fallbacks)
        yield from _gauge("kaudit_silent_fallbacks", "Fallbacks that passed over a path without a word.", silent)
    yield from _gauge("kaudit_unseen", "Cells for which the capture cannot vouch.", {table: len(unseen)})
    if report.passed is not None:
        yield from _gauge("kaudit_gate_passed", "1 if the last gate passed, else 0.", {table: int(report.passed)})


def _axes(chosen: Chosen) -> set[str]:
    reasons = [reason for rejection in chosen.rejections for reason in rejection.reasons]
    return {reason.axis if isinstance(reason, Unmet) else SAID for reason in reasons} or {UNKNOWN}


def _gauge(name: str, what: str, samples: Mapping[Labels, int]) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} gauge"
    for labels, value in sorted(samples.items()):
        said = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        yield f"{name}{{{said}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
