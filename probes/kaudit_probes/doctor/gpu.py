"""Checks of the driver and the GPU as torch sees them."""

import re
from collections.abc import Iterable

from kaudit.diagnosis import Fault, Finding, NotApplicable, Ok, Warn

Version = tuple[int, int]

_NO_GPU_DO = (
    "install or update the NVIDIA driver; in a container, start it with its GPUs (docker run --gpus all); "
    "see whether CUDA_VISIBLE_DEVICES hides them"
)


def driver(asked: str, runtime: Version | None, takes: Version | None, refused: str) -> Finding:
    """`asked`: auto or cuda. `runtime`: CUDA version that torch is built for, None on a CPU build; `takes`: the
    newest that the driver takes, None without a driver; `refused`: why torch's CUDA does not start, empty if it does.
    """
    if runtime is None:
        if asked == "cuda":
            return Fault("torch is a CPU build", "install torch's CUDA build, or ask for --device cpu")
        return NotApplicable("torch is a CPU build")
    if takes is None or refused:
        found = f"torch for CUDA {dotted(runtime)} sees no GPU: {refused or 'no libcuda.so.1 on this machine'}"
        if asked == "cuda":
            return Fault(found, _NO_GPU_DO)
        return Warn(f"{found}; a sweep would take the CPU", _NO_GPU_DO)
    found = f"the driver takes CUDA {dotted(takes)}, torch brings {dotted(runtime)}"
    # Kernels run by minor-version compatibility; CUPTI newer than the driver has failed (HPCToolkit/hpctoolkit#375; the
    # release notes of CUPTI 12.6 Update 1 mend some of it for drivers of CUDA 12.2 and older).
    if takes < runtime:
        return Warn(f"{found}, which is newer", "believe the trial below; update the driver if it fails")
    return Ok(found)


def arch(name: str, capability: Version, built_for: Iterable[str]) -> Finding:
    """`built_for`: as torch.cuda.get_arch_list() has it, "sm_90", "sm_90a", "compute_90"."""
    chip = f"{name}, sm_{capability[0]}{capability[1]}"
    targets = [match for each in built_for if (match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", each))]
    if any(_runs(target, capability) for target in targets if target[1] == "sm"):
        return Ok(chip)
    names = " ".join(target[0] for target in targets)
    if any(_runs(target, capability) for target in targets):
        return Warn(
            f"{chip}: torch has no kernels of its own for it, only PTX that the driver compiles at first use ({names})",
            "install a torch built for this chip: what runs now is not what you would ship",
        )
    return Fault(f"{chip}: torch is built for {names} only", "install a torch built for this chip")


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _runs(target: re.Match[str], capability: Version) -> bool:
    """Machine code runs on later chips of its major version, PTX on any later one, an "a" target on its own chip."""
    kind, major, minor, suffix = target.groups()
    built = (int(major), int(minor))
    if suffix == "a":
        return built == capability
    return built <= capability and (kind == "compute" or built[0] == capability[0])
