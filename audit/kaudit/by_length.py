"""Cells that differ in the length of the KV cache alone, beside one another."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec.structs import replace

from kaudit.cell import Cell, Shape
from kaudit.ids import cells_read

V = TypeVar("V")


def by_length(values: Mapping[tuple[str, str], V]) -> Iterator[tuple[str, list[tuple[int, str, V]]]]:
    """`values`: of cells and ops. Yields each op of attention, by whatever name, with the kv_len, cell and value of
    otherwise equal cells, two or more, the shortest first."""
    groups: defaultdict[tuple[str, str, bool], list[tuple[int, str, V]]] = defaultdict(list)
    for (cell, op), value in values.items():
        if "attention" in op.partition("=")[0]:
            with cells_read():
                parsed = Cell.parse(cell)
            key = _without_length(parsed), op, _whole(parsed.shape)
            groups[key].append((parsed.shape.kv_len, cell, value))
    for (_, op, _), found in groups.items():
        if len(found) > 1:
            yield op, sorted(found, key=lambda one: one[0])


def _without_length(cell: Cell) -> str:
    shape = cell.shape
    return replace(cell, shape=replace(shape, kv_len=1, q_len=1 if _whole(shape) else shape.q_len)).id


def _whole(shape: Shape) -> bool:
    """Queries for all keys: both lengths grow together."""
    return shape.q_len == shape.kv_len
