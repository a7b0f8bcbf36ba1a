"""The facts that NVML has of the GPU that torch sees. Raises whatever NVML and torch raise.

Both are imported by those who ask them: either may be absent.
"""

import os
from collections.abc import Collection
from typing import Any


def driver() -> str:
    return str(_nvml().nvmlSystemGetDriverVersion())


def mig() -> tuple[bool, str, int]:
    """Whether the GPU is split; name and SMs of what torch sees of it."""
    import torch

    nvml, _, gpu = _card()
    now, _ = nvml.nvmlDeviceGetMigMode(gpu)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return now == nvml.NVML_DEVICE_MIG_ENABLE, properties.name, properties.multi_processor_count


def compute_mode() -> int:
    nvml, instance, _ = _card()
    return int(nvml.nvmlDeviceGetComputeMode(instance))


def clocks() -> tuple[int, int, int, bool]:
    """Reasons, as NVML's bits; SM clock now and at most, MHz; whether the driver stays loaded."""
    nvml, _, gpu = _card()
    return (
        nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    )


def memory_clock() -> int:
    """MHz, now."""
    nvml, _, gpu = _card()
    return int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))


def memory_errors() -> int:
    nvml, _, gpu = _card()
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, since))


def other_processes() -> Collection[int]:
    """Ids of the processes that compute on the GPU, without this one. Raises LookupError where they are the host's,
    and this one's is not known among them."""
    nvml, instance, _ = _card()
    listed = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(instance)}
    if listed and os.getpid() not in listed:
        raise LookupError("NVML numbers the processes as the host does, outside of this container")
    return listed - {os.getpid()}


def _nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def _card() -> tuple[Any, Any, Any]:
    """NVML; its handle of what torch sees, which is an instance where the GPU is split; its handle of the whole GPU."""
    import torch

    nvml = _nvml()
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    try:
        gpu = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
        instance = nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
        return nvml, instance, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
    return nvml, gpu, gpu
