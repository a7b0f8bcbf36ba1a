"""What a cell's CUDA graph took, as columns of a measure file; and back."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kaudit import struct_columns
from kaudit.wire import GraphUse

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX = "graph."


def add(table: "pa.Table", graphs: Iterable[GraphUse | None]) -> "pa.Table":
    """The table of measures with columns for graphs, in the order of its rows; empty where a cell ran without one."""
    import pyarrow as pa

    return struct_columns.add(table, _PREFIX, dict.fromkeys(GraphUse.__struct_fields__, pa.int64()), graphs)


def read(path: Path) -> Mapping[tuple[str, str], GraphUse]:
    """By cell and op; nothing where no cell ran as a graph. Raises what pyarrow and msgspec raise over another file."""
    return struct_columns.read(path, _PREFIX, GraphUse, "replays")
