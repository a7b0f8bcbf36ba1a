import re
from collections import Counter

from hypothesis import given
from reports_for_tests import WAIVER, diffed, gated, golden, reports
from tables_for_tests import CELL, announced, header, ran, table

from golden.loss import LOST
from kaudit.expect import Miss
from kaudit.observation import Crashed, Row
from kaudit.report.github import LIMIT, render
from kaudit.report.judged import Report
from kaudit.table import Table


def annotations(report: Report) -> list[tuple[str, dict[str, str], str]]:
    """As the runner of GitHub Actions reads them: command, properties, message."""
    return [_read(line) for line in render(report)]


def _read(line: str) -> tuple[str, dict[str, str], str]:
    assert len(line.splitlines()) == 1 or not {"\n", "\r"} & set(line)
    _, head, message = line.split("::", 2)
    command, _, properties = head.partition(" ")
    pairs = [pair.split("=", 1) for pair in properties.split(",")]
    return command, {name: _plain(value) for name, value in pairs}, _plain(message)


def _plain(text: str) -> str:
    signs = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}
    return re.sub("%(25|0D|0A|3A|2C)", lambda found: signs[found[0]], text)


def test_what_fails_is_an_error_at_its_row_in_the_table() -> None:
    ((command, properties, message),) = annotations(gated(table(ran("flash")), table(ran("eager"))))
    assert command == "error"
    assert properties == {"file": "after.jsonl", "line": "2", "title": "kaudit: silent_fallback"}
    assert message == f"attention left flash for eager without a word\n{CELL}"


def test_what_a_gate_lets_be_is_a_notice_if_something_is_lost() -> None:
    fell = table(ran("split", announced("flash")))
    assert [command for command, *_ in annotations(gated(table(ran("flash")), fell))] == ["notice"]
    assert annotations(gated(fell, table(ran("flash")))) == []


def test_what_is_waived_is_not_told_and_stale_waivers_are() -> None:
    before, after = table(ran("flash")), table(ran("eager"))
    assert annotations(gated(before, after, waivers=[WAIVER])) == []
    ((command, _, message),) = annotations(gated(after, after, waivers=[WAIVER]))
    assert (command, message[:12]) == ("warning", "stale waiver")


def test_a_diff_warns() -> None:
    assert [command for command, *_ in annotations(diffed(table(ran("flash")), table(ran("eager"))))] == ["warning"]


def test_of_more_than_github_shows_the_last_says_how_many() -> None:
    cells = [f"{CELL[:-4]}{number}" for number in range(1000, 1025)]
    before, after = (
        Table.of(header(), [Row(cell, "*", Crashed(f"{how} {cell}")) for cell in cells]) for how in ("SIGSEGV", "exit")
    )
    quiet = gated(before, after)
    assert annotations(quiet) == []
    found = annotations(gated(Table.of(header(), []), after, unmet=(Miss(CELL, "a"), Miss("", "b"))))
    assert [command for command, *_ in found] == ["error"] * LIMIT
    assert found[-1][2].startswith("and 18 more;")


@given(reports())
def test_nothing_in_a_table_forges_a_command(report: Report) -> None:
    found = annotations(report)
    assert all(number <= LIMIT for number in Counter(command for command, *_ in found).values())
    assert {command for command, *_ in found} <= {"error", "warning", "notice"}
    said = "\n".join(message for *_, message in found)
    assert all(change.sentence in said for change in report.told if report.verdict is not None)
    assert all(part in said for miss in report.unmet for part in (miss.cell, miss.sentence))


def test_cells_with_one_sentence_share_an_annotation() -> None:
    ((command, properties, message),) = annotations(golden())
    assert (command, properties["title"]) == ("error", f"kaudit: silent_fallback in {LOST} cells")
    assert "head_dim=128, needs one of 64, 80, 96, 192, 256" in message
    assert message.endswith(f"and {LOST - 5} more cells")
