"""Checks of the machine around: folders that are written to, and variables that steer dispatch."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kaudit.diagnosis import Fault, Finding, NotApplicable, Ok, Warn

_GIB = 1 << 30
_ROOM_FOR_TRACES = 1 * _GIB
"""Bytes: a batch's trace has some tens of MB, an engine's output may have 1 GiB; both lie here for a moment."""

_ROOM_TO_SHARE = 32 << 20
"""Bytes. Docker gives 64 MiB; engines of several processes, and NCCL, share memory there."""


def temporary(folder: Path, free: int) -> Finding:
    """`free`: bytes."""
    found = f"{folder}: {free / _GIB:.1f} GiB free"
    if free < _ROOM_FOR_TRACES:
        return Warn(f"{found}; a trace may not fit", "make room, or set TMPDIR to a folder that has some")
    return Ok(found)


def temporary_here() -> Finding:
    """Writes a file as the probe does: a folder's rights do not tell of a full or read-only disk."""
    try:
        folder = Path(tempfile.gettempdir())
        with tempfile.TemporaryFile() as file:
            file.write(bytes(4096))
            file.flush()
        return temporary(folder, shutil.disk_usage(folder).free)
    except OSError as error:
        return Fault(f"no temporary file can be written: {error.strerror}", "set TMPDIR to a folder with room")


def triton_cache(environment: Mapping[str, str], home: Path) -> Path:
    """Where Triton keeps what it compiled."""
    if folder := environment.get("TRITON_CACHE_DIR"):
        return Path(folder)
    return Path(environment.get("TRITON_HOME") or home) / ".triton" / "cache"


def cache(folder: Path) -> Finding:
    """A cache that is not there yet is made in its nearest folder that is."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if os.access(there, os.W_OK):
        return Ok(f"{folder} can be written")
    return Warn(
        f"Triton's {folder} cannot be written, so that cells with Triton kernels fail",
        "set TRITON_CACHE_DIR to a folder that you may write to",
    )


def shared_memory(free: int | None) -> Finding:
    """`free`: bytes in /dev/shm, None where there is none."""
    if free is None:
        return NotApplicable("no /dev/shm on this machine")
    found = f"/dev/shm: {free / (1 << 20):.0f} MiB free"
    if free < _ROOM_TO_SHARE:
        return Warn(f"{found}, too few for engines of several processes", "in Docker: --shm-size=1g or --ipc=host")
    return Ok(found)


def steering(variables: Mapping[str, str]) -> Finding:
    """`variables`: those that are set and steer dispatch; each table's stamp has them."""
    if not variables:
        return Ok("no variable that steers dispatch is set")
    told = ", ".join(f"{name}={value}" for name, value in variables.items())
    return Ok(f"set, and steers dispatch: {told}")
