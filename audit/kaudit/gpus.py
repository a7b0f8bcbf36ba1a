"""Which GPUs a sweep is shared out between."""

import os
from collections.abc import Sequence

from kaudit.asking import ask, unanswered
from kaudit.errors import UserError, told_in

ALL = "all"
UUIDS = ("GPU-", "MIG-")
"""How the names begin that NVML gives to GPUs and to instances of a split one."""


@told_in("docs/capture.md")
def chosen(wanted: str, python: str) -> tuple[str, ...]:
    """Names for CUDA_VISIBLE_DEVICES, one per GPU, of `all` or `0,2` or UUIDs.

    Numbers count the GPUs that kaudit may use: those that CUDA_VISIBLE_DEVICES lists already, else all, as nvidia-smi
    counts them. Raises UserError for one that is not among them.
    """
    usable = _usable(python)
    if not usable:
        raise UserError("--devices: CUDA_VISIBLE_DEVICES hides every GPU; set it to some, or leave out --devices")
    if wanted == ALL:
        return tuple(usable)
    numbered = {name: name for name in usable} | {str(number): name for number, name in enumerate(usable)}
    names = []
    for part in (part.strip() for part in wanted.split(",")):
        if part not in numbered:
            raise UserError(f'--devices: no GPU "{part}" here; write all, or some of {", ".join(numbered)}')
        names.append(numbered[part])
    if len(set(names)) < len(names):
        raise UserError(f"--devices: {wanted} names a GPU twice; name each once (several probes: --jobs)")
    return tuple(names)


def _usable(python: str) -> Sequence[str]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return _all(python)
    # CUDA reads up to the first that is none, and by convention -1 is none.
    names = [name.strip() for name in listed.split(",")]
    return names[: next((place for place, name in enumerate(names) if name in ("", "-1")), None)]


def _all(python: str) -> Sequence[str]:
    what = "list the GPUs"
    printed = ask(python, what, "kaudit_probes.gpus")
    names = printed.text.decode(errors="replace").splitlines()
    if printed.trouble or not names or not all(name.startswith(UUIDS) for name in names):
        fault = printed.fault if printed.trouble or names else "there is none"
        mend = "leave out --devices, set CUDA_VISIBLE_DEVICES, or name a Python that has kaudit"
        raise unanswered(python, what, fault, mend)
    return names
