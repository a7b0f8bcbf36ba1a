"""Faults that befall a sweep as a whole. Each does it, checks how the sweep ended, and leaves the table of a sweep that
went on once the fault was mended."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from campaign.stage import Ended, Stage, Started, Wrong, said_of
from processes import alive

_ANY = ("light", "real", "cuda")
_FULL = "/dev/full"


@dataclass(frozen=True)
class SweepFault:
    """`mixes`: cells may go wrong beside it; where a process is killed from outside, nobody could say which did it."""

    name: str
    probes: tuple[str, ...]
    befall: Callable[[Stage], None]
    mixes: bool = True
    possible: Callable[[], bool] = lambda: True


def needs(ended: Ended, *parts: str) -> None:
    """The one line of error says these."""
    line = next(line for line in ended.words if line.startswith("error: "))
    for part in parts:
        if part not in line:
            raise Wrong(f"the line of error lacks {part!r}: {line}")


def _probe_killed(stage: Stage) -> None:
    """At any time. The first one ends the sweep if it takes no cells yet: nothing is lost by then."""
    for _ in range(10):
        sweep = stage.start_probing()
        began, pid = stage.journal.exists(), stage.pids()[-1]
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
            ended = stage.end(sweep, 0) if began else stage.end(sweep, 0, 2)
            if ended.code == 2:
                needs(ended, "the probe died before it took cells (SIGKILL)")
                stage.sweep()
            return
        stage.end(sweep, 0)  # it was over before
    raise Wrong("no probe ran for long enough to be killed")


def _ended_by(number: int, code: int, *, times: int, stage: Stage) -> None:
    """The sweep itself, at random points; then it goes on. Python's own end is no place to catch an interrupt: there it
    is the signal that ends the process, which a shell calls 130 as well."""
    for _ in range(stage.chance.randint(1, times)):
        sweep = stage.start_probing("--resume")
        sweep.process.send_signal(number)
        stage.end(sweep, code, -number, 0)
    stage.sweep("--resume")


def _with_limit(stage: Stage) -> None:
    """No file may become larger, as on a full disk or beyond a quota."""
    most = stage.chance.randrange(1024, 12_000)
    ended = stage.sweep(
        codes=(2,), before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    )
    needs(ended, str(stage.table.parent))
    stage.sweep("--resume")


def may_mount() -> bool:
    """Whether this user may mount file systems in a namespace of his own."""
    unshare = shutil.which("unshare")
    return unshare is not None and not subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode


def _mounted(stage: Stage, mount: str, *flags: str) -> Started:
    """The sweep with its folder mounted so; what it leaves there is kept."""
    script = f'cd "$0" && {mount} && "$@"; code=$?; cp -a out/. kept && exit $code'
    (stage.folder / "kept").mkdir()
    return stage.popen(["unshare", "-rm", "sh", "-c", script, str(stage.folder), *stage.command(*flags)])


def _disk_full(stage: Stage) -> None:
    pages = stage.chance.randint(1, 4)
    ended = stage.end(_mounted(stage, f"mount -t tmpfs -o size={pages * 4}k tmpfs out"), 2)
    needs(ended, "No space left on device")
    shutil.rmtree(stage.table.parent)
    (stage.folder / "kept").rename(stage.table.parent)
    stage.sweep("--resume")


def _read_only(stage: Stage) -> None:
    ended = stage.end(_mounted(stage, "mount --bind out out && mount -o remount,ro,bind out"), 2)
    needs(ended, str(stage.table), "--out")
    if stage.pids():
        raise Wrong("a probe was started for a table that cannot be written")
    stage.sweep()


def _folder_goes(stage: Stage) -> None:
    sweep = stage.start_writing()
    shutil.rmtree(stage.table.parent)
    needs(stage.end(sweep, 2), str(stage.table))
    stage.table.parent.mkdir()
    stage.sweep()


def _folder_in_its_place(stage: Stage) -> None:
    sweep = stage.start_writing()
    stage.table.mkdir()
    needs(stage.end(sweep, 2), str(stage.table))
    stage.table.rmdir()
    stage.sweep("--resume")


def _no_temporary_folder(stage: Stage) -> None:
    _import_first(stage, "sitecustomize.py", "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/nowhere']")
    needs(stage.sweep(codes=(2,)), "no temporary file can be written", "set TMPDIR")
    if stage.pids():
        raise Wrong("a probe was started that could say nothing")
    del stage.environment["PYTHONPATH"]
    stage.sweep()


def _temporary_folder_full(stage: Stage) -> None:
    """It takes what the probe prints, and no trace: kaudit is blind, and says so of the cell. Of two
    pages what is printed has one, and the least trace needs two."""
    stage.environment["TMPDIR"] = str(stage.folder / "temporary")
    (stage.folder / "temporary").mkdir()
    stage.end(_mounted(stage, "mount -t tmpfs -o size=8k tmpfs temporary", "--only", "*k64"), 0)
    said = {said_of(line) for line in stage.table.read_text("utf-8").splitlines()[1:]}
    if said != {"unseen: attention: the profiler's trace cannot be written: No space left on device"}:
        raise Wrong(f"without room for a trace: {said}")
    del stage.environment["TMPDIR"]
    stage.sweep()


def _stdout_full(stage: Stage) -> None:
    with open(_FULL, "wb") as full:  # noqa: PTH123
        needs(stage.sweep(codes=(2,), stdout=full), "stdout: No space left on device")
        asked_for_help = stage.popen([sys.executable, "-m", "kaudit", "--help"], stdout=full)
        needs(stage.end(asked_for_help, 2), "stdout: No space left on device")


def _stderr_full(stage: Stage) -> None:
    with open(_FULL, "wb") as full:  # noqa: PTH123
        stage.sweep(stderr=full)


def _reader_goes(stage: Stage) -> None:
    """Whoever read the sweep's stderr reads no more."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        stage.sweep(stderr=writes)
    finally:
        os.close(writes)


def _closed(descriptor: int, stage: Stage) -> None:
    stage.sweep(before=partial(os.close, descriptor))


def _second_sweep(stage: Stage) -> None:
    stage.delay = 0.05
    first = stage.start_writing()
    needs(stage.sweep(codes=(2,)), "another sweep is writing it")
    stage.end(first, 0)


def _import_first(stage: Stage, module: str, source: str) -> None:
    site = stage.folder / "site"
    site.mkdir()
    (site / module).write_text(source)
    stage.environment["PYTHONPATH"] = str(site)


_CLOCK = """
import os, random, time
_now = time.time
time.time = lambda: _now() + random.choice((-1e9, -3600, 0, 3600, 1e9))
time.time_ns = lambda: int(time.time() * 1e9)
with open(os.environ["CAMPAIGN_FOLDER"] + "/clocks", "a") as file:
    file.write("+")
"""


def _clock_jumps(stage: Stage) -> None:
    """The wall clock of sweep and probe, at each look, by up to thirty years."""
    _import_first(stage, "sitecustomize.py", _CLOCK)
    stage.sweep()
    if len((stage.folder / "clocks").read_text()) < 2:
        raise Wrong("the clock did not jump")


_NO_NVML = (
    "raise ImportError('no pynvml')",
    "class NVMLError(Exception): pass\ndef nvmlInit(): raise OSError('libnvidia-ml.so.1: cannot open shared object')",
    "class NVMLError(Exception): pass\ndef nvmlInit(): raise NVMLError('NVML Shared Library Not Found')",
)


def _no_nvml(stage: Stage) -> None:
    """The table must be as with it, but for the driver's version."""
    _import_first(stage, "pynvml.py", stage.chance.choice(_NO_NVML))
    stage.sweep()


SWEEP_FAULTS = {
    fault.name: fault
    for fault in (
        SweepFault("probe killed", _ANY, _probe_killed, mixes=False),
        SweepFault("sweep killed", _ANY, lambda stage: _ended_by(signal.SIGKILL, -9, times=2, stage=stage)),
        SweepFault("sweep terminated", ("light",), lambda s: _ended_by(signal.SIGTERM, -15, times=1, stage=s)),
        SweepFault("sweep interrupted", _ANY, lambda s: _ended_by(signal.SIGINT, 130, times=1, stage=s)),
        SweepFault("file size limit", ("light",), _with_limit),
        SweepFault("disk full", ("light", "real"), _disk_full, possible=may_mount),
        SweepFault("read-only folder", ("light",), _read_only, possible=may_mount),
        SweepFault("folder removed", ("light",), _folder_goes),
        SweepFault("folder in the table's place", ("light",), _folder_in_its_place),
        SweepFault("no temporary folder", ("light",), _no_temporary_folder),
        SweepFault("temporary folder full", ("real",), _temporary_folder_full, mixes=False, possible=may_mount),
        SweepFault("stdout full", ("light",), _stdout_full),
        SweepFault("stderr full", ("light",), _stderr_full),
        SweepFault("stderr read no more", ("light",), _reader_goes),
        SweepFault("stdin closed", ("light",), partial(_closed, 0)),
        SweepFault("stdout closed", ("light",), partial(_closed, 1)),
        SweepFault("stderr closed", ("light",), partial(_closed, 2)),
        SweepFault("second sweep", ("light",), _second_sweep),
        SweepFault("clock jumps", _ANY, _clock_jumps),
        SweepFault("NVML gone", ("cuda",), _no_nvml),
    )
}
