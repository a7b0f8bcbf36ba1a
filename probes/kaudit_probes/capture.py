"""One profiler session over a batch of calls, and the kernels of each (cell, op) that it shows.

The first session of a process may come back empty or short, so one is run and thrown away before anything else happens
(before any CUDA graph is captured, too: CUPTI attaching to an existing graph has hung and crashed). Each later session
carries a sentinel kernel at both ends.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from kaudit.errors import UserError
from kaudit_probes.attribute import Unhealthy, Verdict, attribute
from kaudit_probes.engines import Span
from kaudit_probes.recording import Recording
from kaudit_probes.trace import Trace, TraceError, read

_MORE = 1 << 16
"""Bytes. Of a disk that was full a moment ago they are more than what may have become free since."""

_FIRST, _LAST = "kaudit/first", "kaudit/last"


class Session:
    """What runs inside the profiler. Each opening of a span that it hands out becomes a range of its own.

    `verdicts`: by cell and op, one for each time that its span was opened, once the session has ended: its kernels, or
    why there are none.
    """

    def __init__(self) -> None:
        self._opened: list[tuple[str, str]] = []
        self._open = ""
        self.verdicts: Mapping[str, Mapping[str, Sequence[Verdict]]] = {}

    def span(self, cell: str) -> Span:
        """Spans for the ops of one cell. To open one inside another raises UserError: whose the launches are could not
        be told."""

        @contextmanager
        def op_span(op: str) -> Iterator[None]:
            if self._open:
                raise UserError(f"the adapter marks {op} while {self._open} is open, for {cell}; mend it")
            self._open = op
            self._opened.append((cell, op))
            try:
                with record_function(_range(len(self._opened))):
                    yield
            finally:
                self._open = ""

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
        # torch's own class prepares the process, too: with graphs and CUDA before 12.6 CUPTI must never be torn down.
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])]):
            self._show(_FIRST)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One profiler session around the block; what is raised in it ends it without verdicts."""
        session = Session()
        with Recording(self.on_gpu) as recording:
            self._show(_FIRST)
            yield session
            self._show(_LAST)
        session.end(self._verdicts(recording, session.ranges()))

    def sentinel(self) -> Verdict:
        """What a session shows in which nothing but a sentinel runs."""
        with self.session() as session, session.span("kaudit")("sentinel"):
            self._sentinel.fill_(1.0)
        (verdict,) = session.verdicts["kaudit"]["sentinel"]
        return verdict

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _verdicts(self, recording: Recording, ranges: Sequence[str]) -> Sequence[Verdict]:
        trace = _trace(recording)
        if isinstance(trace, Unhealthy):
            return [trace] * len(ranges)
        found = attribute(trace, ranges, (_FIRST, _LAST), self.on_gpu)
        return [found[name] for name in ranges]

    def _show(self, name: str) -> None:
        self.synchronize()
        with record_function(name):
            self._sentinel.fill_(1.0)
        self.synchronize()


def _trace(recording: Recording) -> Trace | Unhealthy:
    """What was recorded, or why that cannot be had."""
    try:
        with tempfile.TemporaryDirectory(prefix="kaudit-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, "trace.json")
            if not recording.save(path):
                return Unhealthy("another profiler ran in the session and ended it")
            try:
                return read(path)
            except TraceError:
                with path.open("ab") as file:  # what its writer met without a word is met here, too
                    file.write(bytes(_MORE))
                return Unhealthy("the profiler's trace is not whole")
    except OSError as error:
        # Not in its own words: they name this machine's folders, and a table is to be the same on others.
        why = "no usable temporary folder" if isinstance(error, FileNotFoundError) else os.strerror(error.errno or 0)
        return Unhealthy(f"the profiler's trace cannot be written: {why}")


def _range(number: int) -> str:
    return f"kaudit/{number}"
