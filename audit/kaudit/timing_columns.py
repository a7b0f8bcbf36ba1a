"""Timings as columns of a measure file, with the shape of each cell beside them; and back."""

from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kaudit.cell import Cell
from kaudit.timing import Timing, Timings

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX = "timing."
_SHAPE = "shape."


def add(table: "pa.Table", cells: Iterable[str], timings: Iterable[Timing | None]) -> "pa.Table":
    """The table of measures with columns for timings, and for the shapes of their cells, in the order of its rows."""
    import pyarrow as pa

    kinds = _kinds()
    timed = [msgspec.structs.asdict(timing) if timing else {} for timing in timings]
    for name, kind in kinds.items():
        table = table.append_column(_PREFIX + name, pa.array([of.get(name) for of in timed], kind))
    facts = [shape(cell) for cell in cells]
    for name in facts[0] if facts else ():
        table = table.append_column(_SHAPE + name, pa.array([of[name] for of in facts]))
    return table


def read(path: Path) -> Timings:
    """By cell and op; nothing where nothing was timed. Raises what pyarrow and msgspec raise over another file."""
    import pyarrow.parquet as pq

    columns = [_PREFIX + name for name in _kinds()]
    if not {*columns} <= {*pq.read_schema(path).names}:
        return {}
    rows = pq.read_table(path, columns=["cell", "op", *columns]).to_pylist()
    found = {
        (row["cell"], row["op"]): msgspec.convert(
            {name.removeprefix(_PREFIX): value for name, value in row.items() if name.startswith(_PREFIX)}, Timing
        )
        for row in rows
        if row[f"{_PREFIX}clock"] is not None
    }
    for (cell, op), timing in found.items():
        if not all(0 <= sample < inf for sample in timing.samples_us):
            raise ValueError(f"a time of {op} in {cell} is negative or no number")
    return found


def shape(cell_id: str) -> Mapping[str, str | int]:
    """What of a cell's shape belongs beside each of its figures. Tokens are of all requests of the batch together."""
    cell = Cell.parse(cell_id)
    of = cell.shape
    kv_lens = [max(1, of.kv_len * (of.batch - i) // of.batch) if of.skew else of.kv_len for i in range(of.batch)]
    if "vacant" in cell.features:
        kv_lens[-1] = 0
    # Of a mixed batch the first half brings a chunk, the others one token.
    chunks = max(1, of.batch // 2) if cell.phase == "mixed" else of.batch
    q_lens = [min(of.q_len if i < chunks else 1, kv_len) for i, kv_len in enumerate(kv_lens)]
    if "idle" in cell.features:
        q_lens[-1] = 0
    return {
        "phase": cell.phase,
        "batch_sequences": of.batch,
        "batch_tokens": sum(q_lens),
        "context_tokens": sum(kv_lens),
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
