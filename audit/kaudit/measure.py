"""The measure file beside a table: what varies from run to run, keyed by the table's cells and ops."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kaudit import graph_columns, timing_columns
from kaudit.atomic import replacing
from kaudit.errors import UserError
from kaudit.files import check_regular
from kaudit.parquet_columns import columns
from kaudit.table import Stamp, read_cells, read_stamp
from kaudit.timing import Timings
from kaudit.wire import GraphUse, Measure, Numbers

Key = tuple[str, str]
"""Cell and op."""
V = TypeVar("V")

_TIMES = ["cell", "op", "device_us"]
_FIGURES = list(Numbers.__struct_fields__)
_TYPES = dict.fromkeys(_FIGURES, "float64") | {"row": "Int64", "head": "Int64", "hint": "object"}
_TYPES |= dict.fromkeys(("nonfinite", "unwritten"), "int64")


def measure_path(table: Path) -> Path:
    """`v1.jsonl` has its measures in `v1.measure.parquet`."""
    return table.with_name(table.name.removesuffix(".jsonl") + ".measure.parquet")


def with_measures(*tables: Path) -> list[Path]:
    """Tables, and the files that belong beside them, there or not."""
    return [*tables, *(measure_path(table) for table in tables if table.name)]  # the root folder has no name


MANIFEST = b"kaudit"
"""Key of the file's own metadata: the stamp of the table that it belongs to, as JSON."""


def write(path: Path, measures: Iterable[Measure], stamp: Stamp) -> None:
    """Write the measures whole or not at all, sorted by cell and op. Raises UserError where that cannot be done.

    The figures of checked results have columns of their own, where any result was checked; and so have times, and CUDA
    graphs.
    """
    import pandas as pd  # half a second that only a finished sweep needs
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = sorted(measures, key=lambda measure: (measure.cell, measure.op, measure.device_us))
    rows = [(measure.cell, measure.op, measure.device_us) for measure in kept]
    frame = pd.DataFrame(rows, columns=_TIMES).astype({"device_us": "float64"})
    if any(measure.numbers for measure in kept):
        numbers = [msgspec.structs.astuple(measure.numbers or Numbers()) for measure in kept]
        figures = pd.DataFrame(numbers, columns=_FIGURES).astype(_TYPES)
        frame = pd.concat([frame, figures], axis=1)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, MANIFEST: msgspec.json.encode(stamp)})
    if any(measure.timing for measure in kept):
        table = timing_columns.add(table, [measure.cell for measure in kept], [measure.timing for measure in kept])
    if any(measure.graph for measure in kept):
        table = graph_columns.add(table, [measure.graph for measure in kept])
    try:
        with replacing(path) as file:
            pq.write_table(table, file)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; mend that, then go on with --resume") from None


def merged_measures(tables: Iterable[Path]) -> Iterable[Measure]:
    """The measures beside tables of one sweep's shards. Of a row that two have, the first's."""
    found: dict[Key, Measure] = {}
    for table in tables:
        numbers, timings, graphs = read_numbers(table), read_timings(table), read_graphs(table)
        read = {
            key: Measure(*key, device_us, numbers.get(key), timings.get(key), graphs.get(key))
            for key, device_us in read_times(table).items()
        }
        found = read | found
    return found.values()


def read_numbers(table: Path) -> Mapping[Key, Numbers]:
    """By cell and op, the figures of the results that were checked; nothing where none was.

    As all readers here, raises UserError where the file beside the table is none of ours, or that of another table: its
    stamp is another, or it has cells that the table has not.
    """
    return _read(table, _numbers)


def read_times(table: Path) -> Mapping[Key, float]:
    """`device_us` by cell and op, from the measure file beside a table; nothing where there is none."""
    return _read(table, _times)


def read_timings(table: Path) -> Timings:
    """By cell and op, what was timed; nothing where nothing was."""
    return _read(table, timing_columns.read)


def read_graphs(table: Path) -> Mapping[Key, GraphUse]:
    """By cell and op, the CUDA graph that its cell ran as."""
    return _read(table, graph_columns.read)


def _read(table: Path, take: Callable[[Path], Mapping[Key, V]]) -> Mapping[Key, V]:
    """What `take` finds in the file beside a table; nothing where there is none."""
    path = measure_path(table)
    if not path.exists():
        return {}
    with _ours(path):
        found, stamp = take(path), _stamp(path)
    if stamp is not None and table.exists() and stamp != read_stamp(table):
        raise UserError(f"{path}: its measures are of another sweep than {table}; put each beside its own table")
    # Shards of a sweep have one stamp.
    if found and table.exists() and (strange := {cell for cell, _ in found} - read_cells(table)):
        what = f"measures of cells that {table} has not, {len(strange)} in number"
        raise UserError(f"{path}: {what}; put each beside its own table")
    return found


def _stamp(path: Path) -> Stamp | None:
    """Of the table that a file belongs to; None in one of an older kaudit, where nothing was timed."""
    import pyarrow.parquet as pq

    manifest = (pq.read_schema(path).metadata or {}).get(MANIFEST)
    return None if manifest is None else msgspec.json.decode(manifest, type=Stamp)


def _times(path: Path) -> dict[Key, float]:
    read = columns(path, _TIMES)
    if not read:
        raise ValueError(f"it lacks one of {', '.join(_TIMES)}")
    rows = msgspec.convert([*zip(*read.values(), strict=True)], list[tuple[str, str, float]])
    if not all(0 <= us < inf for _, _, us in rows):
        raise ValueError("a device_us is negative or no number")
    return {(cell, op): us for cell, op, us in rows}


def _numbers(path: Path) -> dict[Key, Numbers]:
    read = columns(path, [*_TIMES, *_FIGURES])
    found = {}
    keys = zip(read.get("cell", ()), read.get("op", ()), strict=True)
    for number, key in enumerate(msgspec.convert([*keys], list[Key])):
        row = {name: value if _known(value := read[name][number]) else None for name in _FIGURES}
        if (numbers := msgspec.convert(row, Numbers)) != Numbers():
            found[key] = numbers
    return found


def _known(value: Any) -> bool:
    """Whether it is a value: not none, and no NaN, which pandas writes in place of it."""
    return value is not None and value == value


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    """Raises UserError for what pyarrow raises over a file that is damaged, has other types, or claims to be huge."""
    from pyarrow import ArrowException

    theirs = ArrowException, msgspec.MsgspecError
    try:
        check_regular(path)
        yield
    except (*theirs, OSError, ValueError, TypeError, LookupError, NotImplementedError, MemoryError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        what = next(iter(told.splitlines()), type(error).__name__)
        raise UserError(f"{path}: not a measure file: {what}; sweep again, or move it away") from None
