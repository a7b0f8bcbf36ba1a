"""Checks of what the driver says of the GPU: none of it is seen by the profiler, all of it may bend what is measured.

A query that the GPU does not know raises NVMLError_NotSupported; whoever runs the checks makes "not applicable" of it.
"""

import re
from collections.abc import Collection

from kaudit.diagnosis import CouldNotTell, Fault, Finding, Ok, Warn

SLOWS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Of nvml.h's clock event reasons, those that make a busy GPU slower than it was."""

_TIMES = "nothing for what is seen; do not compare times"

_DEFAULT, _PROHIBITED = 0, 2
"""Of nvml.h's compute modes; the others let one process at a time use the GPU."""


def answers(driver: str, module: str) -> Finding:
    """`driver`: NVML's version of it; `module`: the text of /proc/driver/nvidia/version."""
    loaded = re.search(r"\d+\.\d+(\.\d+)?", module)
    if loaded is None:
        return CouldNotTell(f"driver {driver}; the kernel module's version is not told", "nothing, if the trial is ok")
    if loaded[0] != driver:
        return Warn(
            f"the libraries are of driver {driver}, the kernel module is of {loaded[0]}",
            "reboot, or load the module anew; in a container, start it anew",
        )
    return Ok(f"driver {driver}, libraries and kernel module alike")


def mig(on: bool, name: str, sm_count: int) -> Finding:
    """`name` and `sm_count` as torch has them: of the instance, where the GPU is split."""
    if not on:
        return Ok("off: the whole GPU is ours to see")
    # docs.nvidia.com/cupti, "Multi-Instance GPU": tracing works for isolated and for shared compute instances.
    return Warn(
        f"on: torch sees one instance, {name} with {sm_count} SMs; its kernels are recorded, others' are not; engines "
        "dispatch by the SMs that they see",
        "sweep on the kind of instance that you ship on; pick it by CUDA_VISIBLE_DEVICES=MIG-<uuid>",
    )


def sharing(mode: int) -> Finding:
    """`mode`: the compute mode, as NVML numbers them."""
    if mode == _DEFAULT:
        return Ok("several processes may use the GPU")
    if mode == _PROHIBITED:
        return Fault("compute mode is prohibited: no process may use the GPU", "nvidia-smi --compute-mode=0, as root")
    return Warn(
        "compute mode is exclusive: one process at a time",
        "close others that use the GPU before a sweep; kaudit itself runs one process on it, without --jobs",
    )


def clocks(reasons: int, now: int, most: int, persistent: bool) -> Finding:
    """`reasons`: NVML's bits; `now`, `most`: SM clock in MHz."""
    found = f"SM clock {now} of {most} MHz, persistence mode {'on' if persistent else 'off'}"
    if slowed := [text for bit, text in SLOWS.items() if reasons & bit]:
        return Warn(f"{found}, held back by: {', '.join(slowed)}", _TIMES)
    return Ok(found)


def ecc(errors: int) -> Finding:
    """`errors`: uncorrected ones since the driver was loaded."""
    if errors:
        return Warn(f"{errors} uncorrected memory errors", "do not blame a kernel for wrong results; reset the GPU")
    return Ok("no uncorrected memory errors")


def others(pids: Collection[int]) -> Finding:
    """`pids`: of the processes on the GPU other than this."""
    if pids:
        listed = ", ".join(map(str, sorted(pids)))
        return Warn(f"other processes on the GPU: {listed}", _TIMES)
    return Ok("no other process on the GPU")
