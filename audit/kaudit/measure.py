"""The measure file beside a table: what varies from run to run, keyed by the table's cells and ops."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from kaudit import graph_columns, timing_columns
from kaudit.atomic import replacing
from kaudit.errors import UserError
from kaudit.files import check_regular
from kaudit.table import Stamp, read_stamp
from kaudit.timing import Timings
from kaudit.wire import GraphUse, Measure, Numbers

if TYPE_CHECKING:  # half a second that only those who open a file need
    from pandas import DataFrame

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


MOST_ROWS = 1 << 24
"""A million cells, more than which nobody sweeps unasked, of a dozen ops and the whole."""

MOST_VALUES = 1 << 27
"""Of one column: a hundred samples, the most of an op, in each of a million rows. Values that are all the same pack to
nothing: 300 million rows of them to 5 MB."""

MANIFEST = b"kaudit"
"""Key of the file's own metadata, where anything was timed: the stamp of the table, as JSON."""


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
    if any(measure.timing for measure in kept):
        table = timing_columns.add(table, [measure.cell for measure in kept], [measure.timing for measure in kept])
        table = table.replace_schema_metadata({**table.schema.metadata, MANIFEST: msgspec.json.encode(stamp)})
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
        timings, graphs = read_timings(table), read_graphs(table)
        read = _read(table, _measures)
        found = {
            key: replace(measure, timing=timings.get(key), graph=graphs.get(key)) for key, measure in read.items()
        } | found
    return found.values()


def read_numbers(table: Path) -> dict[Key, Numbers]:
    """By cell and op, the figures of the results that were checked; nothing where none was.

    Raises UserError where the file is none of ours.
    """
    return _read(table, _numbers)


def read_times(table: Path) -> dict[Key, float]:
    """`device_us` by cell and op, from the measure file beside a table; nothing where there is none.

    Raises UserError where the file is none of ours.
    """
    return _read(table, _times, _TIMES)


def read_timings(table: Path) -> Timings:
    """By cell and op, what was timed; nothing where nothing was.

    Raises UserError where the file is none of ours, or that of another table.
    """
    path = measure_path(table)
    if not path.exists():
        return {}
    with _ours(path):
        found, stamp = timing_columns.read(path), _stamp(path)
    if stamp is not None and table.exists() and stamp != read_stamp(table):
        raise UserError(f"{path}: its times are of another sweep than {table}; put each beside its own table")
    return found


def _stamp(path: Path) -> Stamp | None:
    """Of the table that the times of a file belong to; None where nothing was timed."""
    import pyarrow.parquet as pq

    manifest = (pq.read_schema(path).metadata or {}).get(MANIFEST)
    return None if manifest is None else msgspec.json.decode(manifest, type=Stamp)


def read_graphs(table: Path) -> Mapping[Key, GraphUse]:
    """By cell and op, the CUDA graph that its cell ran as. Raises UserError where the file is none of ours."""
    path = measure_path(table)
    if not path.exists():
        return {}
    with _ours(path):
        return graph_columns.read(path)


def _read(table: Path, take: Callable[["DataFrame"], dict[Key, V]], columns: list[str] | None = None) -> dict[Key, V]:
    """What `take` finds in the file beside a table, of all its columns or those named; nothing where there is none."""
    path = measure_path(table)
    if not path.exists():
        return {}
    import pandas as pd

    with _ours(path):
        return take(pd.read_parquet(path, columns=columns))


def _measures(frame: "DataFrame") -> dict[Key, Measure]:
    numbers = _numbers(frame)
    return {key: Measure(*key, device_us, numbers.get(key)) for key, device_us in _times(frame).items()}


def _times(frame: "DataFrame") -> dict[Key, float]:
    known = frame[_TIMES].dropna()
    # Texts are decoded only as they are looked at.
    return dict(zip(_keys(known), known["device_us"].astype("float64").tolist(), strict=True))


def _numbers(frame: "DataFrame") -> dict[Key, Numbers]:
    if not {*_TIMES, *_FIGURES} <= set(frame.columns):
        return {}
    rows = (frame[_FIGURES].astype(object).where(frame[_FIGURES].notna(), None)).itertuples(index=False, name=None)
    each = (msgspec.convert(dict(zip(_FIGURES, row, strict=True)), Numbers) for row in rows)
    return {key: numbers for key, numbers in zip(_keys(frame), each, strict=True) if numbers != Numbers()}


def _keys(frame: "DataFrame") -> Iterator[Key]:
    return zip(frame["cell"].tolist(), frame["op"].tolist(), strict=True)


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    """Raises UserError for what pandas and pyarrow raise over a file that is damaged, has other types, or claims to be
    huge."""
    from pyarrow import ArrowException

    theirs = ArrowException, msgspec.MsgspecError
    try:
        check_regular(path)
        _check_size(path)
        yield
    except (*theirs, OSError, ValueError, TypeError, LookupError, NotImplementedError, MemoryError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        what = next(iter(told.splitlines()), type(error).__name__)
        raise UserError(f"{path}: not a measure file: {what}; sweep again, or move it away") from None


def _check_size(path: Path) -> None:
    """Raises ValueError for a file that unpacks to more than any sweep's."""
    import pyarrow.parquet as pq

    found = pq.read_metadata(path)
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    values = [sum(group.column(number).num_values for group in groups) for number in range(found.num_columns)]
    if found.num_rows > MOST_ROWS or max(values, default=0) > MOST_VALUES:
        raise ValueError(f"{found.num_rows} rows, {max(values, default=0)} values in a column")
