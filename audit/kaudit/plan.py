"""Which cells share a batch, that is, one profiler session of one probe process."""

from collections.abc import Iterator, Sequence

from kaudit.cell import Cell

MOST_CELLS = 32
"""A session costs 0.1 s to stop whatever is in it, and a crash costs the batch: 32 cells make both small."""

MOST_BYTES = 4 << 30
"""The inputs of a whole batch are alive at once, on a GPU that may hold other things."""


def batches(cells: Sequence[Cell]) -> Iterator[tuple[Cell, ...]]:
    """The cells in their order, cut where a batch would hold too many or too large ones."""
    batch: list[Cell] = []
    held = 0
    for cell in cells:
        size = held_bytes(cell)
        if batch and (len(batch) == MOST_CELLS or held + size > MOST_BYTES):
            yield tuple(batch)
            batch, held = [], 0
        batch.append(cell)
        held += size
    if batch:
        yield tuple(batch)


def held_bytes(cell: Cell) -> int:
    """Bytes that a cell holds between its warm-up and its profiled run: K, V, Q and hidden states, at 4 bytes each.

    Scores are not counted: an eager path makes them inside a call and lets them go.
    """
    heads, shape = cell.heads, cell.shape
    cache = shape.kv_len * heads.kv * (heads.dim + heads.v_dim)
    hidden = 2 * shape.q_len * heads.q * heads.dim
    return 4 * shape.batch * (cache + hidden)
