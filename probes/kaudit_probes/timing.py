"""How long a call takes, and each of its ops: `kaudit sweep --timing`. See docs/timing.md for what the figures mean.

The number of runs is fixed before the first of them, by how long a run takes: to stop when the figures look good would
bend them.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median

import torch
from msgspec.structs import replace

from kaudit.observation import WHOLE_CELL, Kernel
from kaudit.timing import Timing
from kaudit.wire import Measure
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict
from kaudit_probes.capture import Capture
from kaudit_probes.clocks import Clocks
from kaudit_probes.compiling import FirstRuns
from kaudit_probes.engines import Call, Span
from kaudit_probes.graphs import Graphed, Seen, graphing, parted
from kaudit_probes.memory import peaks

LEAST, MOST, SECONDS = 10, 100, 0.5
"""Timed runs: as many as take SECONDS, within the bounds. Ten a side are the fewest that tell two times apart among
the 600 tests of 300 cells."""

FEWEST = 3
"""Runs that must fit into the limit of a cell; below, it is not timed."""

WARM_UPS = 3
"""More runs with nothing recorded: memory is there, the clocks are up."""

_RUNS, _OUTLINE = "runs", "outline"
"""What the spans of a session are filed under."""

Run = Callable[[Span], None]
Kernels = Mapping[str, tuple[Kernel, ...]]


class Timer:
    """Times the calls of one device. `limit`: seconds that the runs of one cell may take in all."""

    def __init__(self, capture: Capture, limit: float) -> None:
        self._capture = capture
        self._limit = limit
        self._flushed: torch.Tensor | None = None
        if capture.on_gpu:
            cache = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
            # Twice the cache: what stood in it is gone, whatever it replaces first.
            self._flushed = torch.empty(2 * cache, dtype=torch.int8, device="cuda")

    def time(self, call: Call, first: FirstRuns, kernels: Kernels) -> dict[str, Timing]:
        """By op, and of the whole cell. `kernels`: what each op was seen to run; times of others are not its times."""
        on_gpu = self._capture.on_gpu
        count = runs(first.us[-1] / 1e6, self._limit / 2 if on_gpu else self._limit)
        if count:
            with _quiet():
                for _ in range(WARM_UPS):
                    call.run(nullcontext)
                self._capture.synchronize()
                found = self._on_gpu(call, count, kernels) if on_gpu else _on_cpu(call.run, count)
                found = _with_memory(found, peaks(call.run, on_gpu), kernels)
        else:
            why = f"a run takes {first.us[-1] / 1e6:.2g} s, {FEWEST} are too many for {self._limit:.3g} s of timing"
            found = dict.fromkeys((*kernels, WHOLE_CELL), Timing(unknown=why))
        found = {op: replace(one, launches=_launches(kernels.get(op, ()))) for op, one in found.items()}
        found[WHOLE_CELL] = replace(
            found[WHOLE_CELL],
            launches=sum(map(_launches, kernels.values())),
            warm_ups=len(first.us) + (WARM_UPS if count else 0),
            first_us=first.us[0],
            second_us=first.us[1],
            compile_us=first.compile_us,
            compiled=first.compiled,
            flushed_bytes=0 if self._flushed is None else self._flushed.nbytes,
        )
        for op, (m, n, k) in getattr(call, "gemms", dict)().items():
            if op in found:
                found[op] = replace(found[op], gemm=f"{m}×{n}×{k}")
        return found

    def _on_gpu(self, call: Call, count: int, kernels: Kernels) -> dict[str, Timing]:
        clocks = Clocks()
        clocks.read()
        pairs = [(_event(), _event()) for _ in range(count)]
        for start, end in pairs:
            self._flush()
            start.record()
            call.run(nullcontext)
            end.record()
        clocks.read()  # the GPU is still at work, or was just now
        self._capture.synchronize()
        samples = tuple(1000 * start.elapsed_time(end) for start, end in pairs)
        with self._capture.session() as session:
            for _ in range(count):
                self._flush()
                call.run(session.span(_RUNS))
            if graphing(call) and isinstance(call.graph(), Graphed):
                call.outline(session.span(_OUTLINE))
        clocks.read()
        takes = _by_op(session.verdicts.get(_RUNS, {}), session.verdicts.get(_OUTLINE, {}))
        found = {op: _of_takes(takes.get(op, ()), count, ran) for op, ran in kernels.items()}
        whole = Timing(
            "events",
            samples,
            sm_mhz=_range(clocks.sm_mhz),
            memory_mhz=_range(clocks.memory_mhz),
            held_back=tuple(sorted(clocks.held_back)),
            clocks_unread=clocks.unread,
        )
        launching = [op for op, ran in kernels.items() if ran]
        if launching and not any(found[op].unknown for op in launching):
            steps = zip(*(_busy(takes[op]) for op in launching), strict=True)
            whole = _with_gaps(whole, [[at for busy in step for at in busy] for step in steps])
        return {**found, WHOLE_CELL: whole}

    def _flush(self) -> None:
        if self._flushed is not None:
            self._flushed.zero_()


def with_timings(measures: Sequence[Measure], timed: dict[str, Timing] | str) -> list[Measure]:
    """The measures of a cell with their timings, and one of the whole cell. `timed` is text where a run failed: how."""
    if isinstance(timed, str):
        timed = dict.fromkeys((*(one.op for one in measures), WHOLE_CELL), Timing(unknown=f"timed, it {timed}"))
    whole = Measure(measures[0].cell, WHOLE_CELL, sum(one.device_us for one in measures))
    return [replace(one, timing=timed.get(one.op)) for one in (*measures, whole)]


def runs(seconds: float, limit: float) -> int:
    """How often to time what takes so long, in at most `limit` seconds with the warm-ups; 0: not at all."""
    fitting = int(limit / seconds) - WARM_UPS - 1  # the last is the one in which memory is measured
    wanted = min(MOST, max(LEAST, int(SECONDS / seconds)))
    return min(wanted, fitting) if fitting >= FEWEST else 0


def _on_cpu(run: Run, count: int) -> dict[str, Timing]:
    samples: dict[str, list[float]] = {WHOLE_CELL: []}

    def span(op: str) -> AbstractContextManager[None]:
        return _stopwatch(samples.setdefault(op, []))

    for _ in range(count):
        with span(WHOLE_CELL):
            run(span)
    return {op: Timing("wall", tuple(of)) for op, of in samples.items()}


@contextmanager
def _stopwatch(samples: list[float]) -> Iterator[None]:
    start = time.perf_counter_ns()
    yield
    samples.append((time.perf_counter_ns() - start) / 1000)


def _by_op(seen: Seen, outline: Seen) -> Seen:
    """Of a CUDA graph, every replay shared out to the ops by the one outline of it."""
    if not outline:
        return seen
    parts = [parted(replay, {op: takes[0] for op, takes in outline.items()}) for replay in seen.get(WHOLE_CELL, ())]
    return {op: [part[op] for part in parts] for op in outline}


def _of_takes(takes: Sequence[Verdict], count: int, kernels: tuple[Kernel, ...]) -> Timing:
    """The time of an op in its kernels, if each run shows all of them, and shows those of its row."""
    healthy = [take for take in takes if isinstance(take, Healthy)]
    if len(healthy) != count:
        whys = [take.why for take in takes if isinstance(take, Unhealthy)] or ["its range is missing"]
        return Timing(unknown=f"{count - len(healthy)} of {count} timed runs could not be seen: {whys[0]}")
    if others := sum(take.kernels != kernels for take in healthy):
        return Timing(unknown=f"{others} of {count} timed runs launched other kernels")
    timing = Timing("cupti", tuple(take.device_us for take in healthy))
    return _with_gaps(timing, _busy(healthy)) if kernels else timing


Busy = Iterable[tuple[float, float]]


def _busy(takes: Iterable[Verdict]) -> list[Busy]:
    return [take.busy for take in takes if isinstance(take, Healthy)]


def _with_gaps(timing: Timing, each: Sequence[Busy]) -> Timing:
    found = [gaps(busy) for busy in each]
    span, idle, widest = (median(of) for of in zip(*found, strict=True))
    return replace(timing, span_us=span, idle_us=idle, widest_gap_us=widest)


def gaps(busy: Busy) -> tuple[float, float, float]:
    """From first start to last end; how much of that nothing ran; the longest such wait. Kernels may overlap."""
    (first, until), *rest = sorted(busy)
    waits = [0.0]
    for start, end in rest:
        waits.append(max(0.0, start - until))
        until = max(until, end)
    return until - first, sum(waits), max(waits)


def _with_memory(found: Mapping[str, Timing], held: Mapping[str, int], kernels: Kernels) -> dict[str, Timing]:
    """What a CUDA graph uses was set aside at its capture: of its replay no peak is known."""
    graphs = {op for op, ran in kernels.items() if any(kernel.graph for kernel in ran)}
    unknown = graphs | ({WHOLE_CELL} if graphs else set())
    return {op: one if op in unknown else replace(one, peak_bytes=held.get(op)) for op, one in found.items()}


def _launches(kernels: Sequence[Kernel]) -> int:
    return sum(kernel.count for kernel in kernels)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _range(readings: Sequence[int]) -> tuple[int, ...]:
    return (min(readings), max(readings)) if readings else ()


@contextmanager
def _quiet() -> Iterator[None]:
    """Logging and warnings are off, as where the engine serves: what it says was heard before, and costs time."""
    disabled, always = logging.root.manager.disable, torch.is_warn_always_enabled()
    logging.disable(logging.CRITICAL)
    torch.set_warn_always(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_warn_always(always)
        logging.disable(disabled)
