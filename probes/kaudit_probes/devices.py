"""What --device says: a device of this machine, or a GPU that need not be there."""

import re

from kaudit.errors import UserError

_ARCH = re.compile(r"sm_([5-9]|1\d)(\d)")

SM_COUNT = {80: 108, 89: 142, 90: 132, 100: 148, 120: 188}
"""SMs of the GPU that a compute capability mostly stands for: A100, L40S, H200, B200, RTX PRO 6000 Blackwell."""


def here(asked: str, cuda: bool) -> str:
    """ "cuda" or "cpu", of "auto", "cpu" and "cuda"; `cuda`: whether torch sees a GPU. Raises UserError."""
    if asked not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {asked}: only an engine that predicts takes a GPU's name; write auto, cpu or cuda")
    if asked == "cuda" and not cuda:
        raise UserError("--device cuda: torch sees no CUDA device; check the driver, or use --device cpu")
    return "cuda" if cuda and asked != "cpu" else "cpu"


def capability(asked: str) -> tuple[int, int] | None:
    """(9, 0) of "sm_90"; None where it names no GPU."""
    arch = _ARCH.fullmatch(asked)
    return (int(arch[1]), int(arch[2])) if arch else None


def facts(asked: str) -> tuple[int, int]:
    """Compute capability as a dispatcher counts it (90) and SMs, here or of a named GPU; (0, 0) of a CPU.

    Raises UserError where the device is neither.
    """
    if (named := capability(asked)) is not None:
        sm = 10 * named[0] + named[1]
        if sm not in SM_COUNT:
            known = ", ".join(f"sm_{each}" for each in SM_COUNT)
            raise UserError(f"--device {asked}: how many SMs it has is not known here; name one of {known}")
        return sm, SM_COUNT[sm]
    if asked not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {asked}: names no GPU; write sm_90, say, or auto")
    import torch

    if here(asked, torch.cuda.is_available()) == "cpu":
        return 0, 0
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return 10 * properties.major + properties.minor, properties.multi_processor_count
