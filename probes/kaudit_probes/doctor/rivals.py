"""Checks for others who record or hold back this GPU: one process has one CUPTI client, and the first one has it."""

import re
from collections.abc import Collection, Mapping

from kaudit.diagnosis import CouldNotTell, Finding, Ok, Warn

# CUDA and NVTX load the library that these name into every process (pytorch/pytorch#117935, NVIDIA/TensorRT-LLM#9073:
# CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED). KINETO_USE_DAEMON lets a daemon start torch's profiler at any time.
_VARIABLES = re.compile(r"CUDA_INJECTION(32|64)_PATH|NVTX_INJECTION(32|64)_PATH|NSYS_\w+|KINETO_(USE_DAEMON|CONFIG)")
_PRELOADED = re.compile(r"cupti|nsys|nsight|Injection|sanitizer|nvprof", re.IGNORECASE)

_TOOLS = {
    "nsys": "Nsight Systems",
    "nsys-launcher": "Nsight Systems",
    "ncu": "Nsight Compute",
    "compute-sanitiz": "compute-sanitizer",
    "cuda-gdb": "cuda-gdb",
    "dynolog": "dynolog",
    # It takes hardware counters, which kaudit does not: NVIDIA/DCGM#56, pytorch/pytorch#125272.
    "nv-hostengine": "DCGM",
    "dcgm-exporter": "DCGM",
}
"""By the name that the Linux kernel keeps of a process, its first 15 bytes."""

_ADMIN = 1 << 21
"""CAP_SYS_ADMIN among a process's capabilities."""


def injected(environment: Mapping[str, str]) -> Finding:
    found = [name for name in sorted(environment) if _VARIABLES.fullmatch(name)]
    if _PRELOADED.search(environment.get("LD_PRELOAD", "")):
        found.append("LD_PRELOAD")
    if not found:
        return Ok("no variable loads another profiler into the process")
    told = ", ".join(f"{name}={environment[name]}" for name in found)
    return Warn(
        f"another profiler may come into the process: {told}",
        f"run kaudit outside of that tool, or: unset {' '.join(found)}",
    )


def tools(processes: Collection[str]) -> Finding:
    """`processes`: the names of those that this user can see."""
    if not (found := sorted({f"{_TOOLS[name]} ({name})" for name in processes if name in _TOOLS})):
        return Ok(f"none among the {len(processes)} processes in sight; a container hides its host's")
    return Warn(
        f"running: {', '.join(found)}",
        "believe the trial below; if it fails, stop them (DCGM: dcgmi profile --pause)",
    )


def debugger(status: str) -> Finding:
    """`status`: the text of /proc/self/status."""
    tracer = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    if tracer is None:
        return CouldNotTell("/proc/self/status names no TracerPid", "believe the trial below")
    if tracer[1] != "0":
        return Warn(
            f"process {tracer[1]} traces this one, a debugger or strace",
            "run kaudit outside of it: CUPTI does not work under cuda-gdb, and times are not true under any",
        )
    return Ok("nothing traces this process")


def permission(params: str, status: str) -> Finding:
    """`params`: the text of /proc/driver/nvidia/params; `status`: of /proc/self/status.

    NVIDIA, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: since CUDA 10.2 the restriction bars counters, never tracing.
    """
    restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d)", params, re.MULTILINE)
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    if restricted is None:
        return CouldNotTell(
            "the driver does not say whether it keeps profiling for admins",
            "nothing: kaudit traces launches, which needs no permission, and takes no counters",
        )
    if restricted[1] == "0":
        return Ok("the driver lets every user profile")
    if capabilities and int(capabilities[1], 16) & _ADMIN:
        return Ok("the driver keeps hardware counters for admins, and this process is one (CAP_SYS_ADMIN)")
    return Ok("the driver keeps hardware counters for admins; kaudit takes none, and tracing launches is free to all")
