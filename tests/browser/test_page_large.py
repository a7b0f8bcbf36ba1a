"""How long the report page of a large table takes to load."""

import statistics
from pathlib import Path

from chromium import Chromium

from bench_diff import table as large_table
from kaudit.report.html import Timed, of_one_table


def test_100_000_rows_are_there_in_a_second(browser: Chromium, tmp_path: Path) -> None:
    def path_of(cell: str) -> str:
        return "eager" if "x256/" in cell and "e5m2" in cell else "paged_decode"

    table = large_table("1", path_of, 8)
    assert len(table.rows) > 90_000
    (tmp_path / "page.html").write_text(of_one_table(Timed("large", table, {})), "utf-8")
    took = []
    for _ in range(3):
        browser.open(tmp_path / "page.html")
        took.append(browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    print(f"100,000 rows: loaded in {took} ms")
    assert statistics.median(took) < 1000
    browser.evaluate("search.value = 'k4096'; search.dispatchEvent(new Event('input'))")
    assert browser.evaluate("document.querySelectorAll('*').length") < 3000
