"""Checks of CUPTI, the library that records kernels: which one is loaded, and what is known to be wrong with it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kaudit.diagnosis import CouldNotTell, Finding, Ok, Warn


@dataclass(frozen=True)
class Bug:
    """In CUPTI's API versions `first` to `last`, both with it."""

    first: int
    last: int
    what: str
    do: str


# Which toolkit has which API version: docs.nvidia.com/cupti, "CUPTI Version". From CUDA 13.0 on it is major, minor and
# update, two digits each: 130100.
BUGS = (
    # JuliaGPU/CUDA.jl#2328: confirmed by NVIDIA for 12.4 Update 1, mended in 12.5 Update 1.
    Bug(
        22,
        23,
        "CUPTI of CUDA 12.4 Update 1 to 12.5 may trace no kernels",
        "nothing while the trial is ok; else take torch for CUDA 12.6 or newer",
    ),
    # pytorch/pytorch#192021: zero timestamps since 12.6 Update 2, which Kineto drops as out of range; mended in 13.1.
    # CUPTI's release notes, 13.1 Update 1: wrong correlation ids of graph launches after a process's first session.
    Bug(
        24,
        130099,
        "CUPTI before CUDA 13.1 may lose the first kernels of a session, and mix up those of graph launches",
        "nothing while the trial is ok; if it is not, or cells come out unseen, take torch for CUDA 13.1 or newer",
    ),
)

_BY_API = {22: "12.4", 23: "12.5", 24: "12.6", 26: "12.8", 27: "12.9", 28: "12.9 Update 1"}


def loaded(maps: str) -> list[str]:
    """Paths of the CUPTI libraries in a text of /proc/self/maps."""
    return sorted(set(re.findall(r"/\S*/libcupti\.so\S*", maps)))


def library(paths: Sequence[str], bundled: Sequence[str]) -> Finding:
    """`paths`: the CUPTI libraries of this process; `bundled`: those that were installed along with torch."""
    match paths:
        case []:
            return CouldNotTell("torch has loaded no libcupti.so; it may be linked in", "believe the trial below")
        case [path] if path in bundled or not bundled:
            return Ok(path)
        case [path]:
            # pytorch/pytorch#118982: CUPTI of another toolkit, found by LD_LIBRARY_PATH, does not start.
            return Warn(f"{path} is loaded, not torch's own {bundled[0]}", "take its folder out of LD_LIBRARY_PATH")
    return Warn(
        f"several are loaded, and one may record for all: {', '.join(paths)}",
        "unload the tool that brings the other: see LD_PRELOAD and LD_LIBRARY_PATH",
    )


def version(api: int | None) -> Finding:
    """`api`: what cuptiGetVersion() says, None where no library is loaded to ask."""
    if api is None:
        return CouldNotTell("there is no libcupti.so to ask its version", "believe the trial below")
    toolkit = f"{api // 10000}.{api // 100 % 100}" if api >= 130000 else _BY_API.get(api, "")
    found = f"API version {api}" + (f", of CUDA {toolkit}" if toolkit else "")
    for bug in BUGS:
        if bug.first <= api <= bug.last:
            return Warn(f"{found}: {bug.what}", bug.do)
    return Ok(found)
