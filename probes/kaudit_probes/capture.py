"""One profiler session over a batch of calls, and the kernels of each (cell, op) that it shows.

The first session of a process may come back empty or short, so one is run and thrown away before anything else happens
(before any CUDA graph is captured, too: CUPTI attaching to an existing graph has hung and crashed). Each later session
carries a sentinel kernel at both ends.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kaudit_probes.attribute import Unhealthy, Verdict, attribute
from kaudit_probes.engines import Span
from kaudit_probes.trace import TraceError, read

_FIRST, _LAST = "kaudit/first", "kaudit/last"


class Session:
    """What runs inside the profiler. Each opening of a span that it hands out becomes a range of its own.

    `verdicts`: by cell and op, one for each time that its span was opened, once the session has ended: its kernels, or
    why there are none.
    """

    def __init__(self) -> None:
        self._opened: list[tuple[str, str]] = []
        self.verdicts: Mapping[str, Mapping[str, Sequence[Verdict]]] = {}

    def span(self, cell: str) -> Span:
        """Spans for the ops of one cell."""

        @contextmanager
        def op_span(op: str) -> Iterator[None]:
            self._opened.append((cell, op))
            with record_function(_range(len(self._opened))):
                yield

        return op_span

    def ranges(self) -> list[str]:
        return [_range(number) for number in range(1, len(self._opened) + 1)]

    def end(self, verdicts: Sequence[Verdict]) -> None:
        """`verdicts`: one for each of `ranges()`."""
        found: dict[str, dict[str, list[Verdict]]] = {}
        for (cell, op), verdict in zip(self._opened, verdicts, strict=True):
            found.setdefault(cell, {}).setdefault(op, []).append(verdict)
        self.verdicts = found


class Capture:
    """A profiler on one device, "cuda" or "cpu", primed."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device == "cuda"
        self._sentinel = torch.zeros(1, device=device)
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])]
        with self.session():
            pass

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One profiler session around the block; what is raised in it ends it without verdicts."""
        session = Session()
        with profile(activities=self._activities, acc_events=False) as profiler:
            self._show(_FIRST)
            yield session
            self._show(_LAST)
            ended = not profiling()
        session.end(self._verdicts(profiler, session.ranges(), ended))

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _verdicts(self, profiler: profile, ranges: Sequence[str], ended: bool) -> Sequence[Verdict]:
        if ended:
            return [Unhealthy("another profiler ran in the session and ended it")] * len(ranges)
        with tempfile.TemporaryDirectory(prefix="kaudit-") as folder:
            path = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(path))
            try:
                trace = read(path)
            except TraceError:
                return [Unhealthy("the profiler's trace is not whole")] * len(ranges)
        found = attribute(trace, ranges, (_FIRST, _LAST), self.on_gpu)
        return [found[name] for name in ranges]

    def _show(self, name: str) -> None:
        self.synchronize()
        with record_function(name):
            self._sentinel.fill_(1.0)
        self.synchronize()


def profiling() -> bool:
    """Whether a profiler runs. A second one ends the first without a word; to ask that for its trace is a SIGSEGV."""
    return torch._C._autograd._profiler_enabled()


def _range(number: int) -> str:
    return f"kaudit/{number}"
