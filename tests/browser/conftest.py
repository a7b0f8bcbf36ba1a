"""One browser for a module's tests, and pages of real tables to open in it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import BINARY, Chromium

from kaudit.diff import changes
from kaudit.report.html import Timed, of_one_table, of_two_tables
from kaudit.table import Table, read

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if BINARY is None or sys.platform == "win32":
        pytest.skip("needs Chromium, and pipes that it can inherit: apt-get install chromium")
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Chromium]:
    chromium.media("light")
    yield chromium
    # No exception, no line on the console (a breach of the policy is one), no request but for the page.
    (request,) = chromium.complaints
    assert request["params"]["documentURL"] == request["params"]["request"]["url"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One real table with made-up times, two real ones, and one that has a cell more than the other."""
    folder = tmp_path_factory.mktemp("pages")
    before, after = read(GOLDEN / "decode-h200.jsonl"), read(GOLDEN / "decode-h200-silent.jsonl")
    times = {key: float(number % 50 + 1) for number, key in enumerate(before.rows)}
    slower = {key: time * 2 for key, time in times.items()}
    old, new = Timed("old", before, times), Timed("new", after, slower)
    first, _ = next(iter(before.rows))
    fewer = Table.of(before.header, [row for row in before.rows.values() if row.cell != first])
    added = list(changes(fewer, before))
    (folder / "new.html").write_text(of_two_tables(Timed("fewer", fewer, {}), old, added, [], False), "utf-8")
    (folder / "one.html").write_text(of_one_table(old), "utf-8")
    (folder / "two.html").write_text(of_two_tables(old, new, list(changes(before, after)), [], False), "utf-8")
    return folder
