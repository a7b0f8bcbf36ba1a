"""Timings to test with, from a seeded normal distribution."""

from collections.abc import Iterable

import numpy as np
from tables_for_tests import header, ran

from kaudit.observation import WHOLE_CELL, Row
from kaudit.table import Table
from kaudit.timing import Timing

CELL_OF_BATCH = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b{}q1k4096"
OPS = ("attention", "rms_norm")


def samples(seed: int, median: float, noise: float = 0.02, runs: int = 30) -> tuple[float, ...]:
    return tuple(np.random.default_rng(seed).normal(median, noise * median, runs).tolist())


def cells(count: int) -> list[str]:
    return [CELL_OF_BATCH.format(batch) for batch in range(1, count + 1)]


def timed(
    seed: int, ids: Iterable[str], shift: float = 1.0, shifted: Iterable[str] = (), **whole: object
) -> dict[tuple[str, str], Timing]:
    """Attention takes 100 µs, rms_norm 25, the call 140 by events; in cells that are shifted, so many times as much."""
    found = {}
    slow = set(shifted)
    for number, cell in enumerate(ids):
        by = shift if cell in slow else 1.0
        for place, (op, median) in enumerate(zip((*OPS, WHOLE_CELL), (100.0, 25.0, 140.0), strict=True)):
            taken = samples(10_000 * seed + 3 * number + place, by * median)
            clock = "events" if op == WHOLE_CELL else "cupti"
            conditions = {"sm_mhz": (1965, 1980), **whole} if op == WHOLE_CELL else {}
            found[cell, op] = Timing(clock, taken, **conditions)
    return found


def table(ids: Iterable[str]) -> Table:
    return Table.of(
        header(), [Row(cell, op, ran("flash" if op == "attention" else "fused")) for cell in ids for op in OPS]
    )
