"""What the measure file keeps of times and of results, and what older ones have."""

import math
from pathlib import Path

import pytest
from tables_for_tests import CELL, header

from kaudit import measure
from kaudit.errors import UserError
from kaudit.measure import (
    MANIFEST,
    measure_path,
    merged_measures,
    read_graphs,
    read_numbers,
    read_times,
    read_timings,
    write,
)
from kaudit.observation import WHOLE_CELL
from kaudit.table import Stamp
from kaudit.timing import Timing
from kaudit.timing_columns import shape
from kaudit.wire import GraphUse, Measure, Numbers

FIGURES = Numbers(0.5, 0.03, 1.5, 0.1, 0.2, 0.9, 7, 3, 0, 2, hint="as if the window were one key wider")
MEASURES = [Measure("b", "attention", 2.5, FIGURES), Measure("a", "attention", 1.5)]


def test_figures_come_back_and_a_result_that_was_not_checked_has_none(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), MEASURES, header().stamp)
    assert read_numbers(table) == {("b", "attention"): FIGURES}
    assert read_times(table) == {("a", "attention"): 1.5, ("b", "attention"): 2.5}
    assert sorted(merged_measures([table]), key=lambda measure: measure.cell) == MEASURES[::-1]


def test_without_a_checked_result_the_file_is_as_it_ever_was(tmp_path: Path) -> None:
    import pandas as pd

    table = tmp_path / "t.jsonl"
    write(measure_path(table), MEASURES[1:], header().stamp)
    assert list(pd.read_parquet(measure_path(table)).columns) == ["cell", "op", "device_us"]
    assert read_timings(table) == {}
    assert read_numbers(table) == {}
    assert read_numbers(tmp_path / "none.jsonl") == {}


def test_a_figure_of_another_type_is_one_line(tmp_path: Path) -> None:
    import pandas as pd

    table = tmp_path / "t.jsonl"
    write(measure_path(table), MEASURES, header().stamp)
    frame = pd.read_parquet(measure_path(table)).astype({"error": "object"})
    frame["error"] = "much"
    frame.to_parquet(measure_path(table))
    with pytest.raises(UserError, match="not a measure file"):
        read_numbers(table)


GRAPHS = [
    Measure("a", "attention", 1.5, graph=GraphUse(4, 11, 8, 3, 1 << 21)),
    Measure("a", "o_proj", 2.0, graph=GraphUse(4, 11, 8, 3, None)),
    Measure("b", "attention", 2.5, FIGURES),
]


def test_graphs_come_back_and_a_cell_that_ran_without_one_has_none(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), GRAPHS, header().stamp)
    assert read_graphs(table) == {(one.cell, one.op): one.graph for one in GRAPHS[:2]}
    assert list(merged_measures([table])) == GRAPHS
    assert read_graphs(tmp_path / "none.jsonl") == {}


def test_a_graph_of_another_type_is_one_line(tmp_path: Path) -> None:
    import pandas as pd

    table = tmp_path / "t.jsonl"
    write(measure_path(table), GRAPHS, header().stamp)
    frame = pd.read_parquet(measure_path(table))
    frame["graph.replays"] = "often"
    frame.to_parquet(measure_path(table))
    with pytest.raises(UserError, match="not a measure file"):
        read_graphs(table)


TIMED = [
    Measure(
        CELL,
        WHOLE_CELL,
        30.0,
        timing=Timing(
            "events",
            (31.5, 30.25),
            launches=3,
            first_us=9e5,
            compile_us=8e5,
            compiled=2,
            sm_mhz=(1965, 1980),
            held_back=("power cap",),
        ),
    ),
    Measure(CELL, "attention", 20.0, timing=Timing("cupti", (20.5, 21.0), peak_bytes=1 << 20)),
    Measure(CELL, "o_proj", 10.0, FIGURES, Timing(unknown="it launches nothing", gemm="8×4096×4096")),
]


def test_times_come_back_and_what_was_not_measured_stays_unknown(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), TIMED, header().stamp)
    assert read_timings(table) == {(one.cell, one.op): one.timing for one in TIMED}
    assert read_timings(table)[CELL, "o_proj"].peak_bytes is None
    assert read_numbers(table) == {(CELL, "o_proj"): FIGURES}
    assert list(merged_measures([table])) == TIMED


def test_a_manifest_stands_beside_every_time(tmp_path: Path) -> None:
    import msgspec
    import pyarrow.parquet as pq

    path = measure_path(tmp_path / "t.jsonl")
    write(path, TIMED, header().stamp)
    read = pq.read_table(path)
    assert msgspec.json.decode(read.schema.metadata[MANIFEST], type=Stamp) == header().stamp
    for row in read.to_pylist():
        assert {name.removeprefix("shape."): value for name, value in row.items() if name.startswith("shape.")} == dict(
            shape(CELL)
        )


def test_the_tokens_of_a_batch_are_those_of_all_its_requests() -> None:
    mixed = CELL.replace("decode", "mixed")
    assert shape(CELL) == {
        "phase": "decode",
        "batch_sequences": 8,
        "batch_tokens": 8,
        "context_tokens": 8 * 4096,
        "q_heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "v_head_dim": 128,
        "dtype": "bf16",
        "kv_dtype": "bf16",
        "page_size": 16,
    }
    found = shape(mixed.replace("b8q1k4096", "b3q16k64"))
    assert (found["batch_tokens"], found["context_tokens"]) == (16 + 1 + 1, 3 * 64)
    found = shape(CELL.replace("b8q1k4096", "b4q1k100skew"))
    assert (found["batch_tokens"], found["context_tokens"]) == (4, 100 + 75 + 50 + 25)
    found = shape(CELL.replace("plain", "idle"))
    assert (found["batch_tokens"], found["context_tokens"]) == (7, 8 * 4096)
    found = shape(CELL.replace("plain", "vacant"))
    assert (found["batch_tokens"], found["context_tokens"]) == (7, 7 * 4096)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("timing.clock", "sundial"),
        ("timing.launches", "many"),
        *(("timing.samples_us", [1.0, sample]) for sample in (-1.0, math.nan, math.inf)),
    ],
)
def test_a_time_of_another_kind_is_one_line(tmp_path: Path, column: str, value: str) -> None:
    import pandas as pd

    table = tmp_path / "t.jsonl"
    write(measure_path(table), TIMED, header().stamp)
    frame = pd.read_parquet(measure_path(table))
    frame[column] = [value] * len(frame)
    frame.to_parquet(measure_path(table))
    with pytest.raises(UserError, match="not a measure file"):
        read_timings(table)


@pytest.mark.parametrize(("most", "number"), [("MOST_ROWS", 2), ("MOST_VALUES", 4)])
def test_a_file_that_unpacks_to_more_than_any_sweep_s_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str, number: int
) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), TIMED, header().stamp)
    assert read_timings(table)
    monkeypatch.setattr(measure, most, number)
    for reader in (read_times, read_numbers, read_timings, read_graphs):
        with pytest.raises(UserError, match="not a measure file: 3 rows, 5 values in a column"):
            reader(table)
