"""What an op can cost a whole step: its share of the device time, and the bound that Amdahl (1967) draws from it."""

import math
from collections import defaultdict
from collections.abc import Iterator

from kaudit.observation import WHOLE_CELL
from kaudit.timing import Timings


def shares(timings: Timings) -> Iterator[tuple[tuple[str, str], float]]:
    """By cell and op, the op's share of the time of its step: medians, 0 to 1.

    Nothing is said of a step with fewer than two ops, or of which one was not timed. `attention=x` is attention said in
    other words, and no op of the step.
    """
    steps: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for (cell, op), timing in timings.items():
        if op != WHOLE_CELL and "=" not in op:
            steps[cell][op] = timing.median_us
    for cell, ops in steps.items():
        known = {op: median for op, median in ops.items() if median is not None}
        whole = sum(known.values())
        if len(known) == len(ops) > 1 and whole:
            yield from (((cell, op), median / whole) for op, median in known.items())


def bound(share: float) -> float:
    """How many times as fast the step would be, at most, if an op of that share took no time at all: 1 / (1 - share).

    No faster path of that op can gain more, so no fallback of it costs more.
    """
    return 1 / (1 - share) if share < 1 else math.inf
