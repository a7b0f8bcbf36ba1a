"""The most memory that each op of a call holds at once, on top of what was held when it began.

On a GPU by the counts of torch's caching allocator, which rounds up: see kaudit.memory_growth. On a CPU by torch's
profiler, which notes what torch allocates and frees. What a library takes from the system by itself neither sees.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kaudit.observation import WHOLE_CELL
from kaudit_probes.engines import Span

_RANGE = "kaudit/memory/"


def peaks(run: Callable[[Span], None], on_gpu: bool) -> Mapping[str, int]:
    """Bytes by op, and under WHOLE_CELL of all ops from the start of the first; of one more run."""
    return _on_gpu(run) if on_gpu else _on_cpu(run)


def _on_gpu(run: Callable[[Span], None]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    held: list[tuple[int, int]] = []

    @contextmanager
    def span(op: str) -> Iterator[None]:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        most = torch.cuda.max_memory_allocated()
        held.append((before, most))
        found[op] = most - before

    run(span)
    torch.cuda.synchronize()
    return {**found, WHOLE_CELL: max(most for _, most in held) - held[0][0]}


def _on_cpu(run: Callable[[Span], None]) -> Mapping[str, int]:
    def span(op: str) -> Any:
        return record_function(_RANGE + op)

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False) as profiler:
        run(span)
    # Kineto's own events: a table of the profiler sums up what was allocated, and has no peak.
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    ops = {
        event.name().removeprefix(_RANGE): (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in events
        if event.name().startswith(_RANGE)
    }
    whole = min(start for start, _ in ops.values()), max(end for _, end in ops.values())
    return {op: _peak(changes, *within) for op, within in {**ops, WHOLE_CELL: whole}.items()}


def _peak(changes: Iterable[tuple[int, int]], start: int, end: int) -> int:
    held = most = 0
    for at, size in changes:
        if start <= at <= end:
            held += size
            most = max(most, held)
    return most
