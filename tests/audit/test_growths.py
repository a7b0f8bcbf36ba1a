"""What grows with the length of the KV cache is told wherever a table is summed up."""

from pathlib import Path

import pytest
from tables_for_tests import header, ran
from test_cli import kaudit

from kaudit.growths import growths
from kaudit.measure import measure_path
from kaudit.measure import write as write_measures
from kaudit.observation import Row
from kaudit.table import Table, write
from kaudit.timing import Timing
from kaudit.wire import Measure, Numbers

CELL = "prefill/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b1q{0}k{0}"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Of two lengths: the memory grows fourfold, the error tenfold."""
    path = tmp_path / "t.jsonl"
    measures = [
        Measure(CELL.format(length), "attention", 1.0, Numbers(error, 0.01), Timing("cupti", (1.0,), peak_bytes=peak))
        for length, error, peak in ((1024, 0.002, 64 << 20), (2048, 0.02, 256 << 20))
    ]
    write(path, Table.of(header(), [Row(one.cell, "attention", ran()) for one in measures]))
    write_measures(measure_path(path), measures, header().stamp)
    return path


def test_both_growths_are_found_in_the_measure_file(table: Path) -> None:
    assert [found.kind for found in growths(table)] == ["error_growth", "memory_growth"]
    assert not list(growths(table.with_name("none.jsonl")))


def test_the_page_of_a_table_lists_them(table: Path) -> None:
    assert kaudit("report", table).returncode == 0
    page = table.with_suffix(".html").read_text("utf-8")
    for found in growths(table):
        assert found.sentence.split(" between ")[0].replace("'", "&#39;") in page
