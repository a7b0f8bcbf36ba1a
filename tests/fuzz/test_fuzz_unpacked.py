"""Files of measures that are small and unpack to much, and say so: refused, or read in memory that is accounted for."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import kaudit

from kaudit.timing import Timing
from kaudit.wire import Numbers

GOLDEN = Path(__file__).parents[1] / "golden" / "smoke-cpu.jsonl"
CELL: str = json.loads(GOLDEN.read_text("utf-8").splitlines()[1])["cell"]
LONG = "x" * (7 << 20)
TIMED = {"timing." + name: value for name, value in msgspec.structs.asdict(Timing("wall")).items()}
CHECKED = msgspec.structs.asdict(Numbers())


def repeated(rows: int) -> pa.Array:
    """Written as it is read from any writer: a dictionary and numbers."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [LONG])


def listed(values: pa.Array) -> pa.Array:
    """All of them in one row."""
    return pa.ListArray.from_arrays(pa.array([0, len(values)]), values)


def packed(path: Path, rows: int, groups: int, values: Mapping[str, object], arrays: Mapping[str, pa.Array]) -> None:
    """So many rows in each group, all the same, packed as small as can be."""
    values = {"cell": CELL, "op": "attention", "device_us": 1.0} | values
    kinds = {name: pa.list_(pa.float64()) if isinstance(value, tuple) else None for name, value in values.items()}
    table = pa.table({name: pa.array([value] * rows, kinds[name]) for name, value in values.items()} | arrays)
    limit = {"dictionary_pagesize_limit": 1 << 30}
    with pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=False, **limit) as writer:
        for _ in range(groups):
            writer.write_table(table)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copy(GOLDEN, tmp_path_factory.mktemp("unpacked") / "t.jsonl"))


@pytest.mark.parametrize(
    ("rows", "groups", "values", "arrays", "refused"),
    [
        (2000, 4, {}, {"cell": repeated(2000)}, False),
        (60, 5, {}, {"cell": repeated(60)}, True),
        (2000, 1, {}, {"op": repeated(2000)}, False),
        (2000, 1, CHECKED, {"hint": repeated(2000)}, False),
        (2000, 1, TIMED, {"timing.unknown": repeated(2000)}, False),
        (1, 1, TIMED, {"timing.held_back": listed(repeated(2000))}, True),
        (1, 1, TIMED, {"timing.samples_us": listed(pa.array(np.ones(3_500_000)))}, False),
        (1, 1, TIMED, {"timing.samples_us": listed(pa.array(np.ones(20_000_000)))}, True),
        (1_200_000, 1, {}, {}, False),
        (3_000_000, 1, {}, {}, True),
    ],
    ids=["cells", "more cells", "ops", "hints", "reasons", "lists", "samples", "more samples", "rows", "more rows"],
)
def test_measures_that_unpack_to_much(
    table: Path,
    rows: int,
    groups: int,
    values: Mapping[str, object],
    arrays: Mapping[str, pa.Array],
    refused: bool,
) -> None:
    path = table.with_name("t.measure.parquet")
    packed(path, rows, groups, values, arrays)
    assert path.stat().st_size < 1 << 20
    read = [["report", table, "--out", table.with_name("t.html")]]
    read += [["show", table, "--timing"]] * (values == TIMED) + [["show", table, "--cell", CELL]] * (values == CHECKED)
    for command in read:
        assert (f"{path}: not a measure file: " in kaudit(*command).words) == refused
