"""Faults of a process, as a cell runs: signals, ends, hangs, noise, and hands on the probe's own pipe."""

import ctypes
import mmap
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable

from campaign.planted import START_DIES, CellFault, Scene

_ANY = ("light", "real", "cuda")
_FOREVER = 600.0
"""Seconds: longer than any limit, and short enough for what slips through to end by itself."""

LIMITS = {"light": 3.0, "real": 6.0, "cuda": 10.0}
"""Seconds that a cell gets, by probe."""

HUNG = rf"hung: ({'|'.join(map(str, LIMITS.values()))})"


def _signal(number: int) -> Callable[[Scene], None]:
    return lambda _: os.kill(os.getpid(), number)


def _segfault(_: Scene) -> None:
    ctypes.string_at(0)


def _segfault_under_the_profiler(scene: Scene) -> None:
    if scene.runs > 2:
        ctypes.string_at(0)


def _bus_error(_: Scene) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        mapped[0]


def _killed_once(scene: Scene) -> None:
    if scene.mark(f"killed {scene.cell}"):
        os.kill(os.getpid(), signal.SIGKILL)


def _next_start_dies(scene: Scene) -> None:
    scene.mark(START_DIES)
    os.abort()


def _dies_late(_: Scene) -> None:
    """Takes the process with it once another cell is open, or none."""
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()


def _leaves_a_child(_: Scene) -> None:
    if os.fork():
        os._exit(4)
    time.sleep(_FOREVER)  # holds the pipes open


def _sleeps(_: Scene) -> None:
    time.sleep(_FOREVER)


def _sleeps_with_the_lock(_: Scene) -> None:
    ctypes.PyDLL(None).sleep(int(_FOREVER))  # no other thread of the interpreter can run


def _spins(_: Scene) -> None:
    end = time.monotonic() + _FOREVER
    while time.monotonic() < end:
        pass


def _prints_megabytes(_: Scene) -> None:
    os.write(1, b'{"type":"closed"}\n' * 100_000)
    os.write(2, b"\xff\x00\x1b[2J" * 500_000)


def _floods(scene: Scene) -> None:
    end = time.monotonic() + _FOREVER
    while time.monotonic() < end:
        os.write(scene.pipe, b"x" * 65536)


def _closes_the_pipe(scene: Scene) -> None:
    os.close(scene.pipe)
    time.sleep(_FOREVER)


def _writes(data: bytes) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        os.write(scene.pipe, data)

    return act


_OWN_PIPE = "crashed: wrote to the probe's own pipe"

FAULTS = {
    fault.name: fault
    for fault in (
        CellFault("segfault", _ANY, _segfault, "crashed: SIGSEGV", told=True),
        CellFault("segfault under the profiler", ("real", "cuda"), _segfault_under_the_profiler, "crashed: SIGSEGV"),
        CellFault("bus error", ("light",), _bus_error, "crashed: SIGBUS", told=True),
        CellFault("abort", _ANY, lambda _: os.abort(), "crashed: SIGABRT", told=True),
        CellFault("nameless signal", ("light",), _signal(signal.SIGRTMIN + 5), r"crashed: signal \d+", told=True),
        CellFault("exit", _ANY, lambda _: os._exit(3), "crashed: exit 3", told=True),
        CellFault("exit 0", ("light",), lambda _: os._exit(0), "crashed: exit 0", told=True),
        CellFault("OOM killer", ("light", "real"), _signal(signal.SIGKILL), "crashed: SIGKILL", told=True),
        CellFault("killed once", ("light", "real"), _killed_once, None, told=True),
        CellFault("next start dies", ("light",), _next_start_dies, "crashed: SIGABRT", told=True),
        CellFault("dies late", ("light",), _dies_late, "crashed: SIGKILL|unseen: .*", perhaps=True, mixes=False),
        CellFault("leaves a child", ("light",), _leaves_a_child, "crashed: exit 4", told=True),
        CellFault("hang", _ANY, _sleeps, HUNG, told=True),
        CellFault("hang with the interpreter's lock", ("real",), _sleeps_with_the_lock, HUNG, told=True),
        CellFault("spin", ("real",), _spins, HUNG, told=True),
        CellFault("stopped", ("light", "real"), _signal(signal.SIGSTOP), HUNG, told=True),
        CellFault("megabytes printed", _ANY, _prints_megabytes, None),
        CellFault("garbage on the pipe", _ANY, _writes(b"no message\n"), _OWN_PIPE, told=True),
        CellFault("half a line on the pipe", ("light",), _writes(b'{"type":'), _OWN_PIPE, told=True),
        CellFault("no UTF-8 on the pipe", ("light",), _writes(b'{"text":"\xff"}\n'), _OWN_PIPE, told=True),
        CellFault("deep JSON on the pipe", ("light",), _writes(b'{"x":' + b"[" * 50_000 + b"\n"), _OWN_PIPE, told=True),
        CellFault("flood on the pipe", ("light",), _floods, f"{HUNG}|{_OWN_PIPE}", told=True),
        CellFault("pipe closed", ("light",), _closes_the_pipe, "crashed: closed the probe's own pipe", told=True),
    )
}
