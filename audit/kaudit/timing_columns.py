"""Timings as columns of a measure file, with the shape of each cell beside them; and back."""

from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kaudit import struct_columns
from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit.timing import Timing, Timings

if TYPE_CHECKING:
    import pyarrow as pa

MOST_HELD_BACK = 1 << 12
"""Characters: the five that there are have 86. A long text that a list repeats is there once until they are joined."""

_PREFIX = "timing."
_SHAPE = "shape."


def add(table: "pa.Table", cells: Iterable[str], timings: Iterable[Timing | None]) -> "pa.Table":
    """The table of measures with columns for timings, and for the shapes of their cells, in the order of its rows."""
    import pyarrow as pa

    table = struct_columns.add(table, _PREFIX, _kinds(), timings)
    facts = [shape(cell) for cell in cells]
    for name in facts[0] if facts else ():
        table = table.append_column(_SHAPE + name, pa.array([of[name] for of in facts]))
    return table


def read(path: Path) -> Timings:
    """By cell and op; nothing where nothing was timed. Raises what pyarrow and msgspec raise over another file."""
    found = struct_columns.read(path, _PREFIX, Timing, "clock")
    for (cell, op), timing in found.items():
        if not all(0 <= sample < inf for sample in timing.samples_us):
            raise ValueError(f"a time of {op} in {cell} is negative or no number")
        if sum(map(len, timing.held_back)) > MOST_HELD_BACK:
            raise ValueError(f"more than {MOST_HELD_BACK} characters of what held a GPU back")
    return found


def shape(cell_id: str) -> Mapping[str, str | int]:
    """What of a cell's shape belongs beside each of its figures. Tokens are of all requests of the batch together."""
    cell = Cell.parse(cell_id)
    return {
        "phase": cell.phase,
        "batch_sequences": cell.shape.batch,
        "batch_tokens": sum(q_lens(cell)),
        "context_tokens": sum(kv_lens(cell)),
        "q_heads": cell.heads.q,
        "kv_heads": cell.heads.kv,
        "head_dim": cell.heads.dim,
        "v_head_dim": cell.heads.v_dim,
        "dtype": cell.dtype,
        "kv_dtype": cell.kv_dtype,
        "page_size": cell.layout.page,
    }


def _kinds() -> dict[str, Any]:
    import pyarrow as pa

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    odd = {"samples_us": pa.list_(number), "sm_mhz": pa.list_(whole), "memory_mhz": pa.list_(whole)}
    odd |= {"held_back": pa.list_(text)} | dict.fromkeys(("clock", "unknown", "clocks_unread", "gemm"), text)
    odd |= dict.fromkeys(("launches", "warm_ups", "compiled", "flushed_bytes", "peak_bytes"), whole)
    return {name: odd.get(name, number) for name in Timing.__struct_fields__}
