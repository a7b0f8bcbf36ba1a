"""Annotations of GitHub Actions: workflow commands, one a line."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kaudit.change import Change
from kaudit.report.groups import by_kind, by_sentence
from kaudit.report.judged import Report, Severity
from kaudit.report.text import outdated
from kaudit.wording import count

LIMIT = 10  # annotations of one type that GitHub keeps of one step
COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report) -> Iterator[str]:
    """What fails is an error, what a gate lets be a notice; a diff, which judges nothing, warns of losses.

    One annotation per kind and sentence, at the first row of its cells in the table.
    """
    found: dict[str, list[str]] = {command: [] for command in COMMANDS.values()}
    changes: defaultdict[str, list[Change]] = defaultdict(list)
    for judged in report.judged():
        # What is waived has been decided by people already.
        if judged.judgement != "waived" and judged.severity in COMMANDS:
            changes[COMMANDS[judged.severity]].append(judged.change)
    for command, group in changes.items():
        found[command] += _changes(report, command, group)
    for told in by_sentence(report.unmet, len(report.unmet)):
        message = _with_cells(f"expectation not met: {told.sentence}", told.cells, report.most)
        found["error"].append(_command("error", message, title="kaudit"))
    if report.verdict is not None:
        found["warning"] += [_command("warning", line, title="kaudit") for line in outdated(report.verdict)]
    for command, annotations in found.items():
        if len(annotations) > LIMIT:
            more = f"and {len(annotations) - LIMIT + 1} more; the log and the other formats have them all"
            annotations[LIMIT - 1 :] = [_command(command, more, title="kaudit")]
        yield from annotations


def _changes(report: Report, command: str, changes: Iterable[Change]) -> Iterator[str]:
    places = report.lines_of_file()
    for kind, group in by_kind(changes).items():
        for told in by_sentence(group, len(group)):
            line = places.get((told.first.cell, told.first.op), 1)
            title = f"kaudit: {kind}" + (f" in {told.count} cells" if told.count > 1 else "")
            message = _with_cells(told.sentence, told.cells, report.most)
            yield _command(command, message, file=report.file.as_posix(), line=str(line), title=title)


def _with_cells(sentence: str, cells: tuple[str, ...], most: int) -> str:
    more = [f"and {count(len(cells) - most, 'more cell')}"] if len(cells) > most else []
    return "\n".join((sentence, *filter(None, cells[:most]), *more))


def _command(command: str, message: str, **properties: str) -> str:
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {said}::{_message(message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
