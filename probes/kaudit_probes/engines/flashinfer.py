"""FlashInfer's attention behind the Engine protocol, by the entry point that the cell's layout wants.

Four engines, since a switch of FlashInfer's is no feature of a cell. `flashinfer` lets it choose, and decodes with
tensor cores, as serving engines set it for groups of 4 and more query heads; `flashinfer-cuda-cores` without, which is
FlashInfer's default. `flashinfer-fa2` and `flashinfer-fa3` name the back end.
"""

import re
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Refused, Rejection, Said, Skipped
from kaudit_probes.engines import Heard, Path, Span, importing
from kaudit_probes.engines.declined import Declined, declining
from kaudit_probes.engines.flashinfer_inputs import Inputs
from kaudit_probes.engines.flashinfer_problem import Backend, Planned, problem_of
from kaudit_probes.engines.flashinfer_reasons import turned_down
from kaudit_probes.numerics import Computed
from kaudit_probes.poison import poison

_FA3 = Path("flashinfer:fa3", (r"(?<![A-Za-z])PrefillWithKVCacheKernel<",))
_FA2 = Path("flashinfer:fa2", (r"(Single|Batch)PrefillWith\w+Kernel<",))
_CUDA_CORES = Path("flashinfer:cudacore_decode", (r"(Single|Batch)DecodeWith\w+Kernel",))

# FlashInfer recommends 128 MB for split KV, vLLM gives it 394: long contexts of many heads want more.
_WORKSPACE_BYTES = 512 << 20

# How it says no: its Python by ValueError and NotImplementedError, as which mistakes of a caller come, too; its C++, of
# what it was not compiled for, as a RuntimeError with a source line before the words. "failed with error operation not
# supported" is what the CUDA runtime said; but FA3 itself returns that error for masks and head dims that it has no
# kernel for (hopper/prefill_sm90.cuh).
_DECLINES = re.compile(
    r"(?:\A|(?<=: ))[^\n:]*\b"
    r"(unsupported |(?<!operation )not (yet )?support|only (currently )?support|requires tensor-core"
    r"|\w+sm90(run)? failed with error: operation not support)[^\n]*",
    re.IGNORECASE,
)
saying_no = partial(declining, _DECLINES, (RuntimeError, ValueError, AssertionError))
"""Around FlashInfer's calls: raises Declined where it says that it does not take what it was given."""

_CAST = "Our current prefill kernel implementation needs f16 input"


def refused(backend: Backend, sm: int) -> str | None:
    """Why no sweep of that back end begins on a GPU of compute capability `sm` (90 is 9.0); None where one does."""
    if backend == "auto" and 100 <= sm < 120:
        return (
            f"on sm_{sm} FlashInfer's auto takes cuDNN or CUTLASS at some of its entry points, which this adapter does "
            "not know; name the back end: --engine flashinfer-fa2"
        )
    if backend == "fa3" and not 90 <= sm < 100:
        why = f"FA3 is written in instructions of sm_90, and this is sm_{sm}"
        return f"{why}; name another back end: --engine flashinfer-fa2"
    return None


class FlashInfer:
    name = "flashinfer"
    refusals = (Declined,)
    environment = (
        "FLASHINFER_ALLOW_EXPERIMENTAL_AUTO_BACKENDS",
        "FLASHINFER_CUDA_ARCH_LIST",
        "FLASHINFER_DECODE_AUTO_CUDNN",
        "FLASHINFER_DISABLE_EAGLE_VERIFY_FP8KV_SM90",
        "FLASHINFER_DISABLE_JIT",
        "FLASHINFER_EXTRA_CUDAFLAGS",
        "FLASHINFER_RAGGED_AUTO_BACKEND_ORDER",
    )
    backend: Backend = "auto"

    def __init__(self, device: str) -> None:
        self.require()
        import flashinfer

        if device != "cuda":
            raise UserError(f"--engine {self.name}: FlashInfer needs an NVIDIA GPU; run it where torch sees one")
        self._version = str(flashinfer.__version__)
        major, minor = torch.cuda.get_device_capability()
        self._sm = 10 * major + minor
        if why := refused(self.backend, self._sm):
            raise UserError(f"--engine {self.name}: {why}")
        self._workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol."""
        with importing(cls.name):
            import flashinfer  # noqa: F401

    def revision(self) -> str:
        return f"{self._version}-torch{torch.__version__}"

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return dict.fromkeys(("attention", "attention=prefill_wrapper", "attention=reused_wrapper"), (_FA3, _FA2))

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        problem = problem_of(cell, self.backend)
        return problem if isinstance(problem, Skipped) else None

    def prepare(self, cell: Cell) -> "_Call":
        from kaudit_probes.engines.flashinfer_calls import planned

        problem = problem_of(cell, self.backend)
        assert not isinstance(problem, Skipped), problem.reason
        with saying_no():
            inputs = Inputs(cell, problem, self._workspace)
            return _Call(planned(inputs), self._sm, inputs)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        """FlashInfer chooses without a word, but for one: it casts fp8 queries that FA3 does not take."""
        said = tuple(Said(record.getMessage()) for record in heard.records if record.getMessage().startswith(_CAST))
        return {"attention": (Rejection(_FA3.name, "announced", said[:1]),)} if said else {}


class FlashInferCudaCores(FlashInfer):
    name = "flashinfer-cuda-cores"
    backend = "cuda_cores"

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (_CUDA_CORES,)}


class FlashInferFa2(FlashInfer):
    name = "flashinfer-fa2"
    backend = "fa2"

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        """What was asked for is the first: another in its place is a fallback."""
        return {"attention": (_FA2, _FA3)}


class FlashInferFa3(FlashInfer):
    name = "flashinfer-fa3"
    backend = "fa3"

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        """As for flashinfer-fa2."""
        return {"attention": (_FA3, _FA2)}


BACKENDS: Mapping[str, Backend] = {
    engine.name: engine.backend for engine in (FlashInfer, FlashInferCudaCores, FlashInferFa2, FlashInferFa3)
}
"""Per engine, what it asks FlashInfer for."""


class _Call:
    def __init__(self, calls: Mapping[str, Planned], sm: int, inputs: Inputs) -> None:
        self._calls, self._sm, self._inputs = calls, sm, inputs

    def run(self, span: Span) -> None:
        for op, call in self._calls.items():
            with span(op), saying_no():
                call.run()

    def claimed(self) -> Mapping[str, str]:
        return {op: f"flashinfer:{call.word}" for op, call in self._calls.items() if call.word is not None}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {op: found for op, call in self._calls.items() if (found := turned_down(call, self._sm))}

    def numbers(self) -> list[Computed]:
        """The output alone: its log-sum-exp would take another call than the one that was profiled."""
        asked = self._inputs.attention()
        return [Computed(op, self._over_poison(call), asked) for op, call in self._calls.items()] if asked else []

    def _over_poison(self, call: Planned) -> Tensor:
        """[tokens, q_heads, v_head_dim]. The functions of one request give an output of their own."""
        poison(self._inputs.out)
        with saying_no():
            found = call.run()
        assert isinstance(found, Tensor)
        return found.clone().view_as(self._inputs.out)
