"""All checks, in the order in which they run and are told. The trial is last: by then the hints have been given."""

import os
import platform as python_platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kaudit import __version__
from kaudit.diagnosis import TRIAL, CouldNotTell, Fault, Finding, NotApplicable, Ok
from kaudit.version import installed
from kaudit_probes.doctor import card, cupti, gather, gpu, host, nvml, packages, rivals

Check = Callable[[], Finding]


def checks(asked: str) -> Iterator[tuple[str, Check]]:
    """Name and check, for --device auto, cpu or cuda.

    Each is to be run before the next is asked for: torch is imported in its own check, so that a crash is told as its.
    """
    yield "python", _python
    yield "platform", lambda: packages.platform(_text("/proc/version"))
    yield "torch", lambda: _torch(asked)
    seen = asked != "cpu" and gather.gpu_seen()
    kind = "cuda" if seen or asked == "cuda" else "cpu"
    yield "packages", lambda: packages.beside(installed(), kind)
    yield "driver", _no_gpu if asked == "cpu" else lambda: _driver(asked)
    # Where torch sees no GPU, the driver's own word may be why.
    yield "nvml", _no_gpu if asked == "cpu" or gather.driver_takes() is None else _nvml
    for name, check in _ON_GPU.items():
        yield name, check if seen else _no_gpu
    yield "injection", lambda: rivals.injected(os.environ)
    yield "tools", lambda: rivals.tools(gather.processes())
    yield "debugger", lambda: rivals.debugger(_text("/proc/self/status"))
    yield "environment", lambda: host.steering(gather.steering())
    yield "temporary", host.temporary_here
    yield "cache", lambda: host.cache(host.triton_cache(os.environ, Path.home()))
    yield "memory", lambda: host.shared_memory(_shared())
    yield TRIAL, lambda: _trial(kind)


def guarded(name: str, check: Check) -> Finding:
    """A check that cannot look is no check that found nothing."""
    try:
        return check()
    except ModuleNotFoundError as error:
        return CouldNotTell(str(error), "install kaudit[torch] in that Python")
    except Exception as error:  # whatever it is, the other checks are worth having
        if type(error).__name__ == "NVMLError_NotSupported":
            return NotApplicable("the GPU does not have it")
        first = (str(error).splitlines() or [""])[0]
        do = "what the checks above say" if name == TRIAL else "nothing, if the trial is ok; else mend this first"
        return CouldNotTell(f"{type(error).__name__}: {first}", do)


_ON_GPU: dict[str, Check] = {
    "others": lambda: nvml.others(card.other_processes()),
    "sharing": lambda: nvml.sharing(card.compute_mode()),
    "mig": lambda: nvml.mig(*card.mig()),
    "ecc": lambda: nvml.ecc(card.memory_errors()),
    "clocks": lambda: nvml.clocks(*card.clocks()),
    "gpu": lambda: gpu.arch(*gather.arch()),
    "libcupti": lambda: cupti.library(cupti.loaded(_text("/proc/self/maps")), gather.bundled_cupti()),
    "cupti": lambda: cupti.version(gather.cupti_api(cupti.loaded(_text("/proc/self/maps")))),
    "permission": lambda: rivals.permission(_text("/proc/driver/nvidia/params"), _text("/proc/self/status")),
}
"""What is asked only where torch sees the GPU and is to use it."""


def _no_gpu() -> Finding:
    return NotApplicable("no GPU is used")


def _python() -> Finding:
    system = f"{python_platform.system()} {python_platform.machine()}"
    return Ok(f"kaudit {__version__} in Python {python_platform.python_version()} on {system}, {sys.executable}")


def _nvml() -> Finding:
    return nvml.answers(card.driver(), _text("/proc/driver/nvidia/version"))


def _driver(asked: str) -> Finding:
    return gpu.driver(asked, gather.runtime(), gather.driver_takes(), gather.cuda_refused())


def _torch(asked: str) -> Finding:
    try:
        version, build, activities = gather.torch_build()
    except (ImportError, OSError) as error:  # OSError: a library that torch is linked to
        return Fault(f"cannot be imported: {error}", "install kaudit[torch] in that Python, or name another --python")
    on_gpu = asked != "cpu" and (asked == "cuda" or gather.gpu_seen())
    return packages.torch(version, build, activities, "cuda" if on_gpu else "cpu")


def _trial(kind: str) -> Finding:
    from kaudit_probes.doctor import trial  # imports torch, which may be absent

    return trial.judge(trial.attempt(kind), kind)


def _shared() -> int | None:
    folder = Path("/dev/shm")
    return shutil.disk_usage(folder).free if folder.is_dir() else None


def _text(path: str) -> str:
    return Path(path).read_text(errors="replace")
