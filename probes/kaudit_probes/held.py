"""A capture that a `with` block holds open, for those who cannot hand their code over as a function."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import profile

from kaudit_probes.attribute import Unhealthy, Verdict, attribute
from kaudit_probes.capture import SENTINELS, Capture, Session, range_name
from kaudit_probes.trace import TraceError, read


class HeldSession(Session):
    """`verdicts`: per (cell, op) that a span was opened for, once the session has ended: its kernels or why none."""

    def __init__(self) -> None:
        super().__init__()
        self.verdicts: dict[tuple[str, str], Verdict] = {}


class HeldCapture(Capture):
    """A primed profiler; `with capture.session()` is what Capture.run() is to a function."""

    @contextmanager
    def session(self) -> Iterator[HeldSession]:
        """One profiler session; what is raised in it ends it without verdicts."""
        session = HeldSession()
        with profile(activities=self.activities, acc_events=False) as profiler:
            self.show(SENTINELS[0])
            yield session
            self.show(SENTINELS[1])
            taken = not profiling()
        names = {key: range_name(*key) for key in session.names}
        fault = "another profiler ran in the session and ended it" if taken else ""
        if not fault:
            with tempfile.TemporaryDirectory(prefix="kaudit-") as folder:
                path = Path(folder, "trace.json")
                profiler.export_chrome_trace(str(path))
                try:
                    verdicts = attribute(read(path), list(names.values()), SENTINELS, self.on_gpu)
                    session.verdicts = {key: verdicts[name] for key, name in names.items()}
                except TraceError:
                    fault = "the profiler's trace is not whole"
        if fault:
            session.verdicts = dict.fromkeys(names, Unhealthy(fault))


def profiling() -> bool:
    """Whether a profiler runs. A second one ends the first without a word; to ask that for its trace is a SIGSEGV."""
    return torch._C._autograd._profiler_enabled()
