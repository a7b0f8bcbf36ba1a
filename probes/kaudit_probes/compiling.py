"""What the first runs of a call cost, and what of that Triton spent on compiling."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FirstRuns:
    """`us`: the host's time for each run, the wait for the GPU included. `compiled`: kernels that Triton compiled in
    them, in `compile_us`; both None where there is no Triton to ask. What its cache on disk had was not compiled."""

    us: list[float] = field(default_factory=list)
    compile_us: float | None = None
    compiled: int | None = None


def first_runs(run: Callable[[], None], times: int) -> FirstRuns:
    """Run it that many times. `run` waits for the GPU."""
    found = FirstRuns()
    with _listening(found):
        for _ in range(times):
            start = time.perf_counter_ns()
            run()
            found.us.append((time.perf_counter_ns() - start) / 1000)
    return found


@contextmanager
def _listening(found: FirstRuns) -> Iterator[None]:
    try:
        from triton import knobs
    except ImportError:
        yield
        return
    found.compile_us, found.compiled = 0.0, 0
    before = knobs.compilation.listener

    def heard(*, times: Any, cache_hit: bool, **more: Any) -> None:
        if not cache_hit:
            found.compile_us = (found.compile_us or 0.0) + times.total
            found.compiled = (found.compiled or 0) + 1
        if before is not None:
            before(times=times, cache_hit=cache_hit, **more)

    knobs.compilation.listener = heard
    try:
        yield
    finally:
        knobs.compilation.listener = before
