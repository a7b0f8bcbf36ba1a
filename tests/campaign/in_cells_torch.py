"""Faults that the real probe must handle itself: no memory, exceptions, lost descriptors, and what breaks a GPU."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from campaign.in_cells import HUNG
from campaign.planted import CellFault, Scene

_BOTH = ("real", "cuda")
_NO_MEMORY = "crashed: out of memory"


def _host_limit(_: Scene) -> None:
    """More than an address-space limit allows, 64 MiB above what is in use."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _raises(_: Scene) -> None:
    raise RuntimeError("no kernel for\x1b[2J this\nand a second line")


def _unprintable(_: Scene) -> None:
    raise ValueError("\udc80 is half a character")


class _Wordless(Exception):
    def __str__(self) -> str:
        raise self


def _wordless(_: Scene) -> None:
    raise _Wordless


def _takes_the_streams(_: Scene) -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def _closes_stdout(_: Scene) -> None:
    os.close(1)
    os.close(2)


def _fills_the_gpu(_: Scene) -> None:
    held = []
    while True:
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))


def _device_assert(_: Scene) -> None:
    torch.zeros(4, device="cuda")[torch.full((1,), 99, device="cuda")].sum()


def _launches(body: str, argument: int) -> Callable[[Scene], None]:
    def act(_: Scene) -> None:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

        Device(torch.cuda.current_device()).set_current()  # the primary context, which is torch's
        major, minor = torch.cuda.get_device_capability()
        source = f'extern "C" __global__ void fault(long long argument) {{ {body} }}'
        program = Program(source, "c++", ProgramOptions(arch=f"sm_{major}{minor}"))
        kernel = program.compile("cubin").get_kernel("fault")
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, LaunchConfig(grid=(1, 1), block=1), kernel, argument)

    return act


_wild = _launches("*reinterpret_cast<int*>(argument) = 1;", 16)
_never_ends = _launches("while (clock64() != argument) {}", -1)

TORCH_FAULTS = {
    fault.name: fault
    for fault in (
        CellFault("host memory limit", ("real",), _host_limit, _NO_MEMORY),
        CellFault("host tensor too large", _BOTH, lambda _: torch.empty(1 << 50) and None, _NO_MEMORY),
        CellFault("exception", _BOTH, _raises, r"crashed: RuntimeError: no kernel for\x1b\[2J this"),
        CellFault("unprintable exception", ("real",), _unprintable, r"crashed: ValueError: \? is half a character"),
        CellFault("exception without words", ("real",), _wordless, "crashed: _Wordless"),
        CellFault("streams taken away", ("real",), _takes_the_streams, None),
        CellFault("stdout closed by the cell", ("real",), _closes_stdout, "(crashed|unseen): .*", perhaps=True),
        CellFault("illegal address", ("cuda",), _wild, "crashed: .*illegal memory access.*", told=True),
        CellFault("device assert", ("cuda",), _device_assert, "crashed: .*device-side assert.*", told=True),
        CellFault("CUDA out of memory", ("cuda",), _fills_the_gpu, _NO_MEMORY),
        CellFault("hang on the device", ("cuda",), _never_ends, HUNG, told=True),
    )
}
