"""One run of torch's profiler that keeps what a verdict needs.

`torch.profiler.profile` records every ATen op of the thread that starts it. On a GPU no verdict asks for ops, and they
cost: 540 cells of small attention on an H200, each run twice, took 1.70 ms a cell with them and 1.10 without, from the
first launch to the trace read. On a CPU the ops are the evidence, and those of other threads belong to it. Both are
arguments of the calls beneath that class, so these are made here.
"""

from pathlib import Path
from types import TracebackType

import torch
from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler, _ProfilerResult
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
from torch.autograd.profiler import _run_on_profiler_start, _run_on_profiler_stop


class Recording:
    """Records ranges, API calls and device activities on a GPU; ranges and the ATen ops of all threads on a CPU."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._result: _ProfilerResult | None = None

    def __enter__(self) -> "Recording":
        activities = {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])}
        scopes = {RecordScope.USER_SCOPE} if self._on_gpu else set()  # none named: all
        _prepare_profiler(self._config(), activities)
        _run_on_profiler_start()  # type: ignore[no-untyped-call] # compiled code looks there whether to mark its graphs
        try:
            _enable_profiler(self._config(), activities, scopes)  # type: ignore[call-arg] # its stub lacks the last
        except BaseException:
            _run_on_profiler_stop()  # type: ignore[no-untyped-call]
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """What still runs on the device by now is not recorded."""
        try:
            if recording():
                self._result = _disable_profiler()
        finally:
            _run_on_profiler_stop()  # type: ignore[no-untyped-call]

    def save(self, path: Path) -> bool:
        """Write a Chrome trace. False, and nothing is written, where another profiler ended this one."""
        if self._result is not None:
            self._result.save(str(path))
        return self._result is not None

    def _config(self) -> ProfilerConfig:
        threads = _ExperimentalConfig(profile_all_threads=not self._on_gpu)
        return ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, threads)


def recording() -> bool:
    """Whether a profiler runs. A second one ends the first without a word; to ask that for its trace is a SIGSEGV."""
    return torch.autograd.profiler._is_profiler_enabled
