"""CUDA C++ to a kernel that launches: NVRTC, a cache on disk, and torch's current stream.

cuda-core is imported at the first launch or compilation: a box without it can still decide.
"""

import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

OPTIONS: dict[str, str] = {"std": "c++17"}


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture."""

    code: bytes
    symbol: str
    """The mangled name of the kernel in it."""


def launch(source: str, instance: str, grid: tuple[int, int], block: int, *arguments: float) -> None:
    """Launch a kernel on torch's current stream.

    `source` is a .cu file of this package, `instance` the kernel with its template arguments, e.g.
    `silu_mul_kernel<Half>`. Arguments are addresses, `long long` or `double`: cuda-core passes a Python number as
    8 bytes.
    """
    from cuda.core import LaunchConfig, Stream
    from cuda.core import launch as launch_on

    kernel = _loaded(source, instance, torch.cuda.current_device())
    stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
    launch_on(stream, LaunchConfig(grid=grid, block=block), kernel, *arguments)


@cache
def _loaded(source: str, instance: str, device: int) -> Any:
    """The kernel, ready to launch on a device of this number."""
    from cuda.core import Device, ObjectCode

    Device(device).set_current()  # the primary context, which is torch's
    major, minor = torch.cuda.get_device_capability(device)
    cubin = build(source, instance, f"sm_{major}{minor}")
    return ObjectCode.from_cubin(cubin.code).get_kernel(cubin.symbol)


def build(source: str, instance: str, arch: str) -> Cubin:
    """Machine code of one template instance for an architecture such as `sm_90`, from the disk or from NVRTC."""
    text = _text(source)
    entry = cache_directory() / f"{_key(arch, text, instance)}.cubin"
    if cached := _read(entry):
        return cached
    cubin = _compile(text, instance, arch)
    _write(entry, cubin)
    return cubin


def _text(source: str) -> str:
    """A file of this package with its headers in place: one text, so that the cache's key has all of it in it."""
    text = files(__package__).joinpath(source).read_text(encoding="utf-8")
    return re.sub(r'^#include "(\w+\.cuh)"$', lambda header: _text(header[1]), text, flags=re.MULTILINE)


def cache_directory() -> Path:
    """Where compiled kernels are kept: $KAUDIT_CACHE_DIR, else the user's cache directory by XDG."""
    if chosen := os.environ.get("KAUDIT_CACHE_DIR"):
        return Path(chosen) / "cuda"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaudit" / "cuda"


def _key(arch: str, text: str, instance: str) -> str:
    """Everything that the machine code depends on."""
    from cuda.bindings import nvrtc

    compiler = [int(part) for part in nvrtc.nvrtcVersion()[1:]]
    return hashlib.sha256(json.dumps([arch, compiler, text, instance, OPTIONS]).encode()).hexdigest()


def _compile(text: str, instance: str, arch: str) -> Cubin:
    from cuda.core import Program, ProgramOptions

    program = Program(text, "c++", ProgramOptions(arch=arch, **OPTIONS))
    compiled = program.compile("cubin", name_expressions=(instance,))
    symbol = os.fsdecode(compiled.symbol_mapping[instance])  # bytes, whatever its annotation says
    return Cubin(bytes(compiled.code), symbol)


def _read(entry: Path) -> Cubin | None:
    """The cubin of an entry; None if there is none, or it is not what was written."""
    try:
        digest, symbol, code = entry.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if hashlib.sha256(symbol + code).hexdigest().encode() != digest:
        return None
    return Cubin(code, symbol.decode())


def _write(entry: Path, cubin: Cubin) -> None:
    """Atomic: another process reads a whole entry or none. A cache that cannot be written costs a compilation a run."""
    symbol = cubin.symbol.encode()
    digest = hashlib.sha256(symbol + cubin.code).hexdigest().encode()
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=entry.parent, delete=False) as file:
            file.write(b"\n".join((digest, symbol, cubin.code)))
        Path(file.name).replace(entry)
    except OSError:
        return
