"""How bench_kernels.py measures: seconds of an op without a cold cache's luck, and the gaps of a CUDA graph."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.profiler import ProfilerActivity, profile

from kaudit_kernels.engine import Step
from kaudit_kernels.problem import Problem
from kaudit_probes.engines import Span

L2_FILLER = 256 << 20
SECONDS = 0.08
"""Of GPU time for the iterations of one figure, within the bounds of ITERATIONS."""
ITERATIONS = (5, 60)
REPLAYS = 20

Call = Callable[[Span], object]


class Stopwatch:
    """A Span that times what it goes around: the median over iterations, each between two CUDA events.

    Before each the L2 is filled by reading another 256 MiB (written lines would have to be written back on the op's
    time), and the GPU waits until all launches of the op are queued, so that a launch gap is none of the op's.
    """

    def __init__(self) -> None:
        self._filler = torch.zeros(L2_FILLER // 4, dtype=torch.int32, device="cuda")
        self._events: defaultdict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = defaultdict(list)
        self._ahead = 0

    @contextmanager
    def _span(self, op: str) -> Iterator[None]:
        self._filler.amax()
        torch.cuda._sleep(self._ahead)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._events[op].append((start, end))

    def medians(self, call: Call) -> dict[str, float]:
        """Seconds of each op that the call runs. Two runs, which compile and tune, are not counted."""
        self._ahead = 0
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            call(self._span)
            queued = time.perf_counter() - began
            torch.cuda.synchronize()
            took = time.perf_counter() - began
        self._ahead = int(min(queued * 1.5, 0.05) * 2e9)  # cycles, at some 2 GHz
        self._events.clear()
        least, most = ITERATIONS
        for _ in range(max(least, min(most, int(SECONDS / took)))):
            call(self._span)
        torch.cuda.synchronize()
        return {
            op: statistics.median(start.elapsed_time(end) for start, end in pairs) / 1e3
            for op, pairs in self._events.items()
        }


@dataclass(frozen=True)
class Gaps:
    """Of one replay of a CUDA graph, as a profiler sees it, which can but widen them."""

    kernels: int
    busy: float
    """us in kernels."""
    widest: float
    """us between two kernels."""
    between: tuple[str, str]
    """Their names."""


def gaps(problem: Problem) -> Gaps:
    """Medians over replays of each kernel and each gap. Raises RuntimeError where the profiler lost some."""
    step = Step(problem, "cuda")
    if not step.capturable:
        raise RuntimeError(f"no graph: {'; '.join(map(str, step.ungraphed))}")
    step.run()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):  # the first may lose what it sees
        step.run()
        torch.cuda.synchronize()
    step.capture()
    step.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(REPLAYS):
            step.replay()
            torch.cuda.synchronize()
    return widest(
        [
            (event.name, event.time_range.start, event.time_range.end)
            for event in seen.events()
            if event.device_type.name == "CUDA"
        ]
    )


def widest(seen: list[tuple[str, float, float]]) -> Gaps:
    """Of the kernels of REPLAYS replays: name, start and end in us."""
    kernels = sorted(seen, key=lambda each: each[1])
    count = len(kernels) // REPLAYS
    replays = [kernels[i : i + count] for i in range(0, len(kernels), count)] if count else []
    names = [[name for name, _, _ in replay] for replay in replays]
    if len(names) != REPLAYS or any(each != names[0] for each in names):
        raise RuntimeError(f"{REPLAYS} replays of one graph show {len(kernels)} kernels, not all alike")
    each = [
        statistics.median(after[1] - before[2] for before, after in place)
        for place in zip(*(pairwise(replay) for replay in replays), strict=True)
    ]
    place = max(range(len(each)), key=each.__getitem__)
    busy = statistics.median(sum(end - start for _, start, end in replay) for replay in replays)
    return Gaps(count, busy, each[place], (names[0][place], names[0][place + 1]))
