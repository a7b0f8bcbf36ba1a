"""Checks of Python, the platform, torch and what the GPU engines need beside it."""

import re
from collections.abc import Collection, Mapping

from kaudit.diagnosis import Fault, Finding, NotApplicable, Ok, Warn

OLDEST_TORCH = (2, 8)

_NEEDED = ("triton", "cuda-core")
"""What the bundled reference engine launches kernels with."""


def platform(kernel: str) -> Finding:
    """`kernel`: the text of /proc/version."""
    # pytorch/kineto#762: under WSL 2, torch's profiler has recorded the CPU and no kernels, with every setting right.
    if "microsoft" in kernel.lower():
        return Warn("Windows Subsystem for Linux, where torch's profiler has missed kernels", "believe the trial below")
    return Ok(" ".join(kernel.split()[:3]))


def torch(version: str, build: str, activities: Collection[str], kind: str) -> Finding:
    """`build`: "CPU", "CUDA 12.8"; `activities`: what its profiler can record, of "CPU" and "CUDA".

    That a CPU build has no CUDA is for the check of the driver to say.
    """
    found = f"torch {version}, {build} build"
    if (numbers := re.match(r"(\d+)\.(\d+)", version)) and (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return Fault(f"{found}: too old", f"install torch {oldest} or newer in that Python")
    # conda-forge/pytorch-cpu-feedstock#367: builds without Kineto import and run, and record nothing of a GPU.
    recorded = "CPU" if build == "CPU" else kind.upper()
    if recorded not in activities:
        return Fault(
            f"{found}: its profiler cannot record {recorded} activity, it was built without Kineto",
            "install a build of torch that has it: pytorch.org's wheels do",
        )
    return Ok(found)


def beside(installed: Mapping[str, str], kind: str) -> Finding:
    """`installed`: versions by package, empty where it is absent."""
    found = ", ".join(f"{name} {installed[name] or 'absent'}" for name in _NEEDED)
    if kind == "cpu":
        return NotApplicable(f"{found}; a CPU needs neither")
    if not all(installed[name] for name in _NEEDED):
        return Warn(found, "pip install 'kaudit[cuda]' there, if you sweep the reference engine")
    return Ok(found)
