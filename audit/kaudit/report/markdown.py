"""Markdown for a job's page or a pull request: what fails in a table, the cells folded away."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kaudit.change import KINDS, Kind
from kaudit.report.groups import T, by_kind, outline
from kaudit.report.judged import Judgement, Report
from kaudit.report.text import summary, waivers
from kaudit.wording import count


def render(report: Report) -> Iterator[str]:
    """What engines and tables say stands in code spans: nothing in it is a link, a mention or HTML."""
    stamp = report.after.header.stamp
    yield f"### kaudit: {_headline(report)}"
    yield ""
    yield f"{code(stamp.engine)} on {code(stamp.device.name)}, matrix {code(stamp.matrix)}"
    yield ""
    if report.context:
        yield from (*(f"- {code(line)}" for line in report.context), "")
    yield from _table(report)
    rules = report.rules()
    for kind, group in by_kind(report.told).items():
        yield "<details>"
        yield f"<summary>{kind}: {len(group)} ({KINDS[kind]})</summary>"
        yield ""
        yield from (f"- {code(str(rule))}" for rule in rules.get(kind, ()))
        yield from _sentences(group, report.most)
        yield "</details>"
        yield ""
    if report.unmet:
        yield from ("**Expectations not met**", "", *_sentences(report.unmet, report.most))
    if report.verdict is not None:
        yield from _listed("Waivers", waivers(report.verdict))


def _sentences(group: Sequence[T], most: int) -> Iterator[str]:
    yield from (f"{'  ' * depth}- {line}" for depth, line in outline(group, most, code))
    yield ""


def _headline(report: Report) -> str:
    if report.verdict is not None:
        return summary(report.verdict, len(report.unmet))
    return count(len(report.changes), "change") if report.changes else "nothing changed"


def _table(report: Report) -> Iterator[str]:
    counts: Counter[tuple[Kind, Judgement]] = Counter()
    for judged in report.judged():
        counts[judged.change.kind, judged.judgement] += 1
    columns: tuple[Judgement, ...] = ("changed",) if report.verdict is None else ("failing", "waived", "tolerated")
    kinds = [kind for kind in KINDS if any(counts[kind, column] for column in columns)]
    if not kinds:
        return
    yield f"| kind | {' | '.join(columns)} | |"
    yield f"| --- |{' ---: |' * len(columns)} --- |"
    for kind in kinds:
        yield f"| `{kind}` | {' | '.join(str(counts[kind, column]) for column in columns)} | {KINDS[kind]} |"
    yield ""


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    if listed := [f"- {code(line)}" for line in lines]:
        yield from (f"**{title}**", "", *listed, "")


def code(text: str) -> str:
    """A code span that holds any text: on one line, in a fence longer than any in it."""
    line = " ".join(text.split()) or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"
