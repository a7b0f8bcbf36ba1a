"""Which cells share a batch, that is, one profiler session of one probe process."""

import math
from collections import deque
from collections.abc import Sequence

from kaudit.cell import Cell

FIRST_CELLS, LEAST_CELLS, MOST_CELLS = 2, 8, 512
"""Cells of the first batch, so that the first rows come early: torch's cuDNN attention plans each new shape for 0.1 s.
Then as many as fit into BATCH_SECONDS, within the bounds, and at most twice as many as before. A batch of 512 ids fits
into a pipe."""

BATCH_SECONDS = 4.0
"""A session around nothing takes 5 ms on an H200, and a death costs the batch: that is little of 4 s, and those are
little to lose."""

MOST_BYTES = 4 << 30
"""The inputs of a whole batch are alive at once, on a GPU that may hold other things."""


class Batches:
    """Hands out cells in their order, to so many `hosts`; `each`: that many cells a batch, whatever they cost."""

    def __init__(self, cells: Sequence[Cell], hosts: int = 1, each: int | None = None) -> None:
        self._cells = deque(cells)
        self._hosts = hosts
        self._each = each
        self._most = each or FIRST_CELLS

    def __bool__(self) -> bool:
        return bool(self._cells)

    def take(self) -> tuple[str, ...]:
        """The ids of the next batch. Raises IndexError where no cell is left."""
        most = self._most
        if self._hosts > 1 and not self._each:
            # Batches grow smaller to the end, so that the hosts end together.
            most = min(most, max(LEAST_CELLS, math.ceil(len(self._cells) / (2 * self._hosts))))
        batch = [self._cells.popleft()]
        held = held_bytes(batch[0])
        while self._cells and len(batch) < most:
            held += held_bytes(self._cells[0])
            if held > MOST_BYTES:
                break
            batch.append(self._cells.popleft())
        return tuple(cell.id for cell in batch)

    def took(self, cells: int, seconds: float) -> None:
        """Learn from a batch that is done. Deaths and hangs in it count: where there are some, less is to be lost."""
        if not self._each:
            fitting = int(cells * BATCH_SECONDS / max(seconds, 1e-3))
            self._most = max(LEAST_CELLS, min(fitting, 2 * self._most, MOST_CELLS))


def held_bytes(cell: Cell) -> int:
    """Bytes that a cell holds between its warm-up and its profiled runs: K, V, Q and hidden states, at 4 bytes each.

    Scores are not counted: an eager path makes them inside a call and lets them go.
    """
    heads, shape = cell.heads, cell.shape
    cache = shape.kv_len * heads.kv * (heads.dim + heads.v_dim)
    hidden = 2 * shape.q_len * heads.q * heads.dim
    return 4 * shape.batch * (cache + hidden)
