"""What the measure file keeps of times and of results, and what older ones have."""

import math
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace
from tables_for_tests import CELL, header, ran

from kaudit import parquet_columns
from kaudit import table as table_file
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
from kaudit.observation import WHOLE_CELL, Row
from kaudit.table import Stamp, Table
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
        ("timing.held_back", ["x" * 99] * 99),
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


ALL = [replace(one, graph=GraphUse(4, 11, 8, 3, None)) for one in TIMED]
READERS = (read_times, read_numbers, read_timings, read_graphs)


def test_columns_that_are_not_read_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), ALL, header().stamp)
    monkeypatch.setattr(parquet_columns, "MOST_RATIO", 0)
    monkeypatch.setattr(parquet_columns, "FREE_BYTES", 700)
    assert len(read_times(table)) == 3
    with pytest.raises(UserError, match=r"not a measure file: .* that unpack to"):
        read_timings(table)


@pytest.mark.parametrize("most", ["MOST_ROWS", "FREE_BYTES"])
def test_a_file_that_unpacks_to_more_than_any_sweep_s_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    table = tmp_path / "t.jsonl"
    write(measure_path(table), ALL, header().stamp)
    assert read_timings(table)
    monkeypatch.setattr(parquet_columns, "MOST_RATIO", 0)
    assert read_timings(table)
    monkeypatch.setattr(parquet_columns, most, 2)
    for reader in READERS:
        with pytest.raises(UserError, match=r"not a measure file: \d+ bytes of 3 rows that unpack to \d+ bytes"):
            reader(table)


def test_a_text_that_many_rows_have_is_there_once(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, long = tmp_path / "t.parquet", "x" * (1 << 20)
    table = pa.table({"cell": [long] * 50 + [None], "reasons": [[long, None, "y"]] * 49 + [[], None]})
    pq.write_table(table, path, compression="zstd", row_group_size=51)
    del table
    before = pa.default_memory_pool().max_memory()
    found = parquet_columns.columns(path, ["cell", "reasons"])
    assert pa.default_memory_pool().max_memory() - before < 50 * len(long)
    assert {id(cell) for cell in found["cell"][:50]} == {id(found["cell"][0])}
    assert found["cell"][0] == long
    assert found["cell"][50] is None
    assert {id(texts[0]) for texts in found["reasons"][:49]} == {id(found["reasons"][0][0])}
    assert found["reasons"][48] == [long, None, "y"]
    assert found["reasons"][49:] == [[], None]


KINDS = [{"a": 1}, b"\xff", b"x" * 9, [[1]], 5, 1.5, True, date(2026, 1, 2), None]


@pytest.mark.parametrize("column", ["cell", "op"])
@pytest.mark.parametrize("key", KINDS, ids=str)
def test_keys_of_another_kind_are_one_line(tmp_path: Path, key: object, column: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = tmp_path / "t.jsonl"
    write(measure_path(table), ALL, header().stamp)
    read = pq.read_table(measure_path(table))
    array = pa.array([key] * len(read), pa.binary(9) if key == b"x" * 9 else None)
    pq.write_table(read.set_column(read.column_names.index(column), column, array), measure_path(table))
    for reader in READERS:
        with pytest.raises(UserError, match=r"not a measure file: [^\n]+; sweep again, or move it away$"):
            reader(table)


@pytest.mark.parametrize("us", ["inf", "1.5", True, date(2026, 1, 2), None, math.nan, math.inf, -1.0], ids=str)
def test_a_device_time_of_another_kind_is_one_line(tmp_path: Path, us: object) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = tmp_path / "t.jsonl"
    columns = {"cell": ["a"], "op": ["attention"], "device_us": pa.array([us])}
    pq.write_table(pa.table(columns), measure_path(table))
    with pytest.raises(UserError, match="not a measure file"):
        read_times(table)


@pytest.mark.parametrize("kept", [MEASURES, GRAPHS, TIMED], ids=["checked", "graphs", "timed"])
def test_measures_of_another_table_are_noticed_timed_or_not(tmp_path: Path, kept: list[Measure]) -> None:
    table = tmp_path / "t.jsonl"
    table_file.write(table, Table.of(header(), [Row(cell, "attention", ran()) for cell in ("a", "b", CELL)]))
    write(measure_path(table), kept, header().stamp)
    assert read_times(table)
    write(measure_path(table), kept, replace(header().stamp, revision="another"))
    for reader in READERS:
        with pytest.raises(UserError, match="its measures are of another sweep than"):
            reader(table)


def test_measures_of_another_shard_are_noticed(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    other = Row(CELL.replace("k4096", "k8192"), "attention", ran())
    write(measure_path(table), [*ALL, Measure(*other.key, 1.0)], header().stamp)
    table_file.write(table, Table.of(header(), [other]))
    for reader in READERS:
        with pytest.raises(UserError, match=r"measures of cells that .*t\.jsonl has not, 1 in number; put each beside"):
            reader(table)
    table_file.write(table, Table.of(header(), [other, Row(CELL, "attention", ran())]))
    assert all(reader(table) for reader in READERS)
