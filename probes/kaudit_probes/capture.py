"""One profiler session over a batch of calls, and the kernels of each (cell, op) that it shows.

The first session of a process may come back empty or short, so one is run and thrown away before anything else happens
(before any CUDA graph is captured, too: CUPTI attaching to an existing graph has hung and crashed). Each later session
carries a sentinel kernel at both ends.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kaudit_probes.attribute import Unhealthy, Verdict, attribute
from kaudit_probes.engines import Span
from kaudit_probes.trace import Trace, TraceError, read

SENTINELS = ("kaudit/sentinel/first", "kaudit/sentinel/last")


class Session:
    """What runs inside the profiler. Each span it hands out becomes a range of its own name."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    def span(self, cell: str) -> Span:
        """Spans for the ops of one cell."""

        @contextmanager
        def op_span(op: str) -> Iterator[None]:
            self.names.append((cell, op))
            with record_function(range_name(cell, op)):
                yield

        return op_span


class Capture:
    """A profiler on one device, primed."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device == "cuda"
        self._sentinel = torch.zeros(1, device=device)
        self.activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])]
        self._profiled(lambda: None)

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def run(self, body: Callable[[Session], None]) -> dict[tuple[str, str], Verdict]:
        """Run `body` in one session: per (cell, op) that it opened a span for, the kernels or why there are none."""
        session = Session()
        trace = self._profiled(lambda: body(session))
        names = {key: range_name(*key) for key in session.names}
        match trace:
            case Trace():
                verdicts = attribute(trace, list(names.values()), SENTINELS, self.on_gpu)
            case TraceError():
                verdicts = dict.fromkeys(names.values(), Unhealthy("the profiler's trace is not whole"))
        return {key: verdicts[name] for key, name in names.items()}

    def _profiled(self, body: Callable[[], None]) -> Trace | TraceError:
        with profile(activities=self.activities, acc_events=False) as profiler:
            self.show(SENTINELS[0])
            body()
            self.show(SENTINELS[1])
        with tempfile.TemporaryDirectory(prefix="kaudit-") as folder:
            path = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(path))
            try:
                return read(path)
            except TraceError as error:
                return error

    def show(self, name: str) -> None:
        self.synchronize()
        with record_function(name):
            self._sentinel.fill_(1.0)
        self.synchronize()


def range_name(cell: str, op: str) -> str:
    return f"kaudit/{cell}/{op}"
