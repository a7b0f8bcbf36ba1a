"""What a cell's CUDA graph took, as columns of a measure file; and back."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kaudit.wire import GraphUse

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX = "graph."
_COLUMNS = [f"{_PREFIX}{name}" for name in GraphUse.__struct_fields__]


def add(table: "pa.Table", graphs: Iterable[GraphUse | None]) -> "pa.Table":
    """The table of measures with columns for graphs, in the order of its rows; empty where a cell ran without one."""
    import pyarrow as pa

    used = [msgspec.structs.asdict(graph) if graph else {} for graph in graphs]
    for name in GraphUse.__struct_fields__:
        table = table.append_column(_PREFIX + name, pa.array([of.get(name) for of in used], pa.int64()))
    return table


def read(path: Path) -> Mapping[tuple[str, str], GraphUse]:
    """By cell and op; nothing where no cell ran as a graph. Raises what pyarrow and msgspec raise over another file."""
    import pyarrow.parquet as pq

    if not {*_COLUMNS} <= {*pq.read_schema(path).names}:
        return {}
    rows = pq.read_table(path, columns=["cell", "op", *_COLUMNS]).to_pylist()
    return {
        (row["cell"], row["op"]): msgspec.convert(
            {name.removeprefix(_PREFIX): row[name] for name in _COLUMNS}, GraphUse
        )
        for row in rows
        if row[f"{_PREFIX}replays"] is not None
    }
