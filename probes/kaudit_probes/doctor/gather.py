"""The facts that the checks look at, asked of torch, CUPTI and the kernel. Raises whatever they raise.

torch is imported by those who ask it: it may be absent.
"""

import ctypes
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from kaudit_probes.doctor.gpu import Version


def gpu_seen() -> bool:
    """Whether torch can use a GPU."""
    try:
        import torch
    except (ImportError, OSError):
        return False
    return torch.cuda.is_available()


def torch_build() -> tuple[str, str, Collection[str]]:
    """torch's version, what it is built for, and the activities that its profiler can record."""
    import torch

    cuda, hip = torch.version.cuda, torch.version.hip
    build = f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "CPU"
    recorded = [activity.name for activity in torch.profiler.supported_activities()]  # type: ignore[no-untyped-call]
    return str(torch.__version__), build, recorded if torch.profiler.kineto_available() else []


def runtime() -> Version | None:
    """CUDA version that torch is built for."""
    import torch

    return _version(str(torch.version.cuda)) if torch.version.cuda else None


def driver_takes() -> Version | None:
    """Newest CUDA version that the driver takes; None where there is no driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    return number.value // 1000, number.value % 1000 // 10


def cuda_refused() -> str:
    """Why torch's CUDA does not start, in its first line; empty where it does."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return ""


def arch() -> tuple[str, Version, list[str]]:
    import torch

    return torch.cuda.get_device_name(), torch.cuda.get_device_capability(), torch.cuda.get_arch_list()


def bundled_cupti() -> list[str]:
    """CUPTI as NVIDIA's packages install it beside torch; empty where torch takes a toolkit's."""
    import torch

    beside = Path(torch.__file__).resolve().parents[1]
    return sorted(str(path) for path in beside.glob("nvidia/*/lib/libcupti.so*"))


def cupti_api(loaded: list[str]) -> int | None:
    """What the loaded CUPTI says of itself; to load one for the question would put it in the way of torch's."""
    if not loaded:
        return None
    number = ctypes.c_uint32()
    ctypes.CDLL(loaded[0]).cuptiGetVersion(ctypes.byref(number))
    return number.value


def processes() -> Collection[str]:
    """Names of the processes that this one can see."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended meanwhile
            found.append(path.read_text().strip())
    return found


def steering() -> Mapping[str, str]:
    from kaudit_probes import stamp

    return stamp.environment(())


def _version(text: str) -> Version:
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)
