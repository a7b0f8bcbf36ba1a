"""What the measure file keeps of times and of results, and what older ones have."""

from pathlib import Path

import pytest

from kaudit.errors import UserError
from kaudit.measure import measure_path, merged_measures, read_numbers, read_times, write
from kaudit.wire import Measure, Numbers

FIGURES = Numbers(0.5, 0.03, 1.5, 0.1, 0.2, 0.9, 7, 3, 0, 2, None, "as if the window were one key wider")
MEASURES = [Measure("b", "attention", 2.5, FIGURES), Measure("a", "attention", 1.5)]


def test_figures_come_back_and_a_result_that_was_not_checked_has_none(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), MEASURES)
    assert read_numbers(table) == {("b", "attention"): FIGURES}
    assert read_times(table) == {("a", "attention"): 1.5, ("b", "attention"): 2.5}
    assert sorted(merged_measures([table]), key=lambda measure: measure.cell) == MEASURES[::-1]


def test_without_a_checked_result_the_file_is_as_it_ever_was(tmp_path: Path) -> None:
    import pandas as pd

    table = tmp_path / "t.jsonl"
    write(measure_path(table), MEASURES[1:])
    assert list(pd.read_parquet(measure_path(table)).columns) == ["cell", "op", "device_us"]
    assert read_numbers(table) == {}
    assert read_numbers(tmp_path / "none.jsonl") == {}


def test_a_figure_of_another_type_is_one_line(tmp_path: Path) -> None:
    import pandas as pd

    table = tmp_path / "t.jsonl"
    write(measure_path(table), MEASURES)
    frame = pd.read_parquet(measure_path(table)).astype({"error": "object"})
    frame["error"] = "much"
    frame.to_parquet(measure_path(table))
    with pytest.raises(UserError, match="not a measure file"):
        read_numbers(table)
