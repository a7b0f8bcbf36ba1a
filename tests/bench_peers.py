"""What else could serve an op on this GPU, for bench_kernels.py: attention by kaudit's own adapters, fp8 in bf16."""

from collections.abc import Callable, Iterator

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kaudit.cell import Cell, Layout
from kaudit_kernels.fp8 import Fp8Weight
from kaudit_probes.engines import Span, load
from kaudit_probes.engines.sdpa_call import calls

Prepare = Callable[[], Callable[[Span], object]]
"""Makes the inputs, and gives what runs the op under a span. Raises where the peer is absent, or does not take it."""


def peers(op: str, cell: Cell, arguments: tuple[object, ...]) -> Iterator[tuple[str, Prepare]]:
    """`arguments`: what the engine's own kernels are launched with."""
    match op, arguments:
        case "attention", _:
            for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
                if cell.kv_dtype == cell.dtype:
                    yield f"sdpa:{name}, contiguous", lambda backend=backend: _sdpa(cell, backend)
            yield f"flashinfer, {cell.layout}", lambda: _flashinfer(cell)
        case _, (Tensor() as x, Fp8Weight() as weight):
            yield "cuBLAS, in bf16", lambda: _in_bf16(op, x, weight)


def _sdpa(cell: Cell, backend: SDPBackend) -> Callable[[Span], object]:
    """The same attention over contiguous K and V: SDPA has no pages."""
    own = calls(replace(cell, layout=Layout("contiguous")), "cuda")["attention"]

    def call(span: Span) -> None:
        with sdpa_kernel(backend), span("attention"):
            own.run()

    return call


def _flashinfer(cell: Cell) -> Callable[[Span], object]:
    engine = load("flashinfer")("cuda")
    if unfit := engine.supports(cell):
        raise ValueError(unfit.reason)
    return engine.prepare(cell).run


def _in_bf16(op: str, x: Tensor, weight: Fp8Weight) -> Callable[[Span], object]:
    """The product as it is without fp8: what quantising has to be faster than."""
    wide = weight.dequantised().to(torch.bfloat16)

    def call(span: Span) -> None:
        with span(op):
            x @ wide

    return call
