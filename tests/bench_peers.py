"""What else could serve a cell's attention on this GPU, for bench_kernels.py: by kaudit's own adapters."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace
from torch.nn.attention import SDPBackend, sdpa_kernel

from kaudit.cell import Cell, Layout
from kaudit_probes.engines import Span, load
from kaudit_probes.engines.sdpa_call import calls

Prepare = Callable[[], Callable[[Span], object]]
"""Makes the inputs, and gives what runs the cell under a span. Raises where the peer is absent, or does not take it."""


def peers(cell: Cell) -> Iterator[tuple[str, Prepare]]:
    for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        if cell.kv_dtype == cell.dtype:
            yield f"sdpa:{name}, contiguous", lambda backend=backend: _sdpa(cell, backend)
    yield f"flashinfer, {cell.layout}", lambda: _flashinfer(cell)


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
