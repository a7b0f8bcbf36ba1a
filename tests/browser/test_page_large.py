"""How long the report page of a large table takes to load."""

import statistics
from pathlib import Path

import pytest
from chromium import Chromium

from bench_diff import table as large_table
from kaudit.observation import Kernel, Ran, Row
from kaudit.report.html import Timed, of_one_table
from kaudit.table import Table


@pytest.mark.timed
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


def test_a_map_of_more_fields_than_a_call_takes_arguments_is_drawn(browser: Chromium, tmp_path: Path) -> None:
    header = large_table("1", lambda _: "eager", 8).header
    outcome = Ran("eager", (Kernel("eager", "fa2", "attention", 1),))
    token = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain"
    rows = [
        Row(f"{token}/b{batch}q1k{kv_len}", "attention", outcome) for batch in range(1, 401) for kv_len in range(1, 401)
    ]
    times = {row.key: float(number + 1) for number, row in enumerate(rows)}
    page = of_one_table(Timed("wide", Table.of(header, rows), times))
    (tmp_path / "page.html").write_text(page, "utf-8")
    browser.open(tmp_path / "page.html")
    browser.evaluate("[view.down, view.across, view.byTime] = ['batch', 'kv_len', true]; refresh()")
    assert browser.text("#heat td") == "1.00 µs"
