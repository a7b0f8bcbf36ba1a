"""Columns of a Parquet file that anybody may have written, in memory that its size and its footer account for.

A footer that lies is believed, for pyarrow unpacks a page before anybody can tell: 22 KB with a page of 700 MiB took
2.9 GB.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 1 << 24
"""A million cells, more than which nobody sweeps unasked, of a dozen ops and the whole."""

FREE_BYTES, MOST_RATIO = 32 << 20, 256
"""What is read may unpack to the first in any case, and to so many times the file's size: values that are all the same
pack to nothing, 300 million rows of them to 5 MB. Of files that kaudit writes 101 times was the most that was found:
10,000 cells of eleven ops that all took equally long, one of them timed, whose times are 20 MB in 0.2 MB."""


def columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """By name, the values of its rows; nothing where the file lacks one of them.

    Raises ValueError where its footer says that they unpack to more than any sweep's, TypeError for columns that are
    neither numbers nor texts nor lists of those, and what pyarrow raises over another file.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        if not {*names} <= {*file.schema_arrow.names}:
            return {}
        _check_size(file.metadata, names, path.stat().st_size)
        leaves = [file.schema.column(number) for number in range(len(file.schema))]
    # Each text once, however many rows have it: sixty rows of one of 20 MiB would be 1.2 GB.
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read([*names])
    known: dict[str, str] = {}
    return {name: [value for chunk in table[name].chunks for value in _values(chunk, name, known)] for name in names}


def _values(array: "pa.Array", name: str, known: dict[str, str]) -> list[Any]:
    """As to_pylist(), but for texts: rows that have the same one share it, and so are quickly compared. `known`: those
    that were read before."""
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind) and (types.is_string(kind.value_type) or types.is_large_string(kind.value_type)):
        texts = [known.setdefault(text, text) for text in array.dictionary.to_pylist()]
        return [None if number is None else texts[number] for number in array.indices.to_pylist()]
    if types.is_list(kind) or types.is_large_list(kind):
        inner, ends = _values(array.values, name, known), array.offsets.to_pylist()
        there = array.is_valid().to_pylist()
        return [inner[start:end] if has else None for start, end, has in zip(ends, ends[1:], there, strict=False)]
    if types.is_primitive(kind) or types.is_null(kind):
        found: list[Any] = array.to_pylist()
        return found
    raise TypeError(f"{name} is neither numbers nor texts")


def _check_size(metadata: Any, names: Sequence[str], packed: int) -> None:
    """`metadata`: pyarrow's of the file; `names`: of the columns that are read; `packed`: the file's bytes."""
    # A list's path goes on behind its name.
    paths = [f"{metadata.schema.column(number).path}." for number in range(metadata.num_columns)]
    read = [number for number, path in enumerate(paths) if path.startswith(tuple(f"{name}." for name in names))]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in read]
    unpacked = sum(max(chunk.total_uncompressed_size, 8 * chunk.num_values, 0) for chunk in chunks)
    if metadata.num_rows > MOST_ROWS or unpacked > max(FREE_BYTES, MOST_RATIO * packed):
        raise ValueError(f"{packed} bytes of {metadata.num_rows} rows that unpack to {unpacked} bytes, no sweep's")
