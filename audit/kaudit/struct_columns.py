"""Structs as columns of a measure file, one for each field under a common prefix; and back."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kaudit.parquet_columns import columns

if TYPE_CHECKING:
    import pyarrow as pa

S = TypeVar("S", bound=msgspec.Struct)


def add(
    table: "pa.Table", prefix: str, kinds: Mapping[str, Any], values: Iterable[msgspec.Struct | None]
) -> "pa.Table":
    """The table with a column of each field, in the order of its rows; empty where there is no struct.

    `kinds`: pyarrow's types by field.
    """
    import pyarrow as pa

    fields = [msgspec.structs.asdict(value) if value else {} for value in values]
    for name, kind in kinds.items():
        table = table.append_column(prefix + name, pa.array([of.get(name) for of in fields], kind))
    return table


def read(path: Path, prefix: str, kind: type[S], never_none: str) -> dict[tuple[str, str], S]:
    """By cell and op, of the rows that have one, told by a field that it always has; nothing where the file has no such
    columns. Raises what pyarrow and msgspec raise over another file."""
    names = {prefix + name: name for name in kind.__struct_fields__}
    known = columns(path, ["cell", "op", *names])
    rows = (dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True))
    return {
        msgspec.convert((row["cell"], row["op"]), tuple[str, str]): msgspec.convert(
            {short: row[name] for name, short in names.items()}, kind
        )
        for row in rows
        if row[prefix + never_none] is not None
    }
