"""torch's FlexAttention, compiled, as its documentation says to use it."""

import logging
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import dropwhile

import torch
import torch._inductor.config
from torch.nn.attention import flex_attention

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Kernel, Refused, Rejection, Said, Skipped, Unmet
from kaudit_probes.engines import Heard, Path, Span, importing, mirrored
from kaudit_probes.engines.declined import Declined, declining
from kaudit_probes.engines.flex_call import Arguments, Attend, arguments, compiled
from kaudit_probes.engines.torch_attention import (
    SHORT_QUERY,
    UNFUSED,
    announced_of_fused,
    overhearing,
    revision,
    untold,
)

_SHORT = 128
"""Queries of fewer tokens may be served by the decode template, which is not made for a longer one."""

_TEMPLATE = re.compile(r"^triton_tem_")
_COMBINE = re.compile(r"^triton_(per|red|poi)_")

# Each lowering says here whether it takes the decode template; at DEBUG, so nobody who runs it hears that.
_CHOICE = "torch._inductor.kernel.flex.flex_decoding"
# What its lowering raises to say no; inductor wraps that in an error of its own.
_NO = re.compile(r"(?<=NotImplementedError: ).*")
_UNCOMPILED = "flex_attention called without torch.compile()"


class FlexEngine:
    name = "flex"
    refusals = (Declined, NotImplementedError)
    environment = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE")

    def __init__(self, device: str) -> None:
        self._device = device
        if device == "cuda":
            self._require_grids()
        # A kernel out of a cache is lowered by nobody: then the choice of template would be said in some runs alone.
        torch._inductor.config.force_disable_caches = True

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol. A CPU has no grids, and a sweep takes the GPU where torch sees one."""
        if torch.cuda.is_available():
            cls._require_grids()

    @classmethod
    def _require_grids(cls) -> None:
        with importing(cls.name):  # the packages around it, that is
            tells = find_spec("torch._inductor.kernel.flex") is not None
        if not tells:
            get = "install 2.9 or later where --python points"
            raise UserError(
                f"--engine {cls.name}: the grids of torch {torch.__version__} do not tell its templates; {get}"
            )

    def revision(self) -> str:
        return revision()

    def switches(self) -> Mapping[str, str]:
        return {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "inductor.max_autotune": str(torch._inductor.config.max_autotune),
        }

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        unfused = Path("flex:unfused", roles=UNFUSED)
        if self._device == "cpu":
            # Generated C++ runs no ATen op: torch's event around the compiled graph is what shows it.
            paths = Path("flex:main", (r"^## Call CompiledFxGraph",)), unfused
            return {"attention": paths, SHORT_QUERY: paths}
        decode = Path("flex:decode", (_TEMPLATE.pattern,), fits=lambda cell, kernels: not is_main(cell, kernels))
        main = Path("flex:main", (_TEMPLATE.pattern,), fits=is_main)
        return {"attention": (main, unfused), SHORT_QUERY: (decode, main, unfused)}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        if cell.layout.kind != "contiguous":
            return Skipped(f"flex_attention takes contiguous k and v, not {cell.layout}")
        if cell.phase == "mixed":
            return Skipped("flex_attention takes one q_len for the whole batch, mixed has two")
        why = untold(cell, "flex_attention", {"softcap", "speculative_tree"})
        return Skipped(why) if why else None

    def prepare(self, cell: Cell) -> "_Call":
        # Warnings that come once in a process are to be heard in each cell that has cause for them.
        getattr(flex_attention, "_WARNINGS_SHOWN", set()).clear()
        return _Call(cell, arguments(cell, self._device), self.attend(), on_gpu=self._device == "cuda")

    def attend(self) -> Attend:
        """The function that one cell calls."""
        return compiled()

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        said = next((text for text in heard.warnings if text.startswith(_UNCOMPILED)), None)
        return {} if said is None else announced_of_fused(self.paths(), (Said(said.splitlines()[0]),))


class _Call:
    def __init__(self, cell: Cell, inputs: Arguments, attend: Attend, on_gpu: bool) -> None:
        self._cell, self._inputs, self._attend, self._on_gpu = cell, inputs, attend, on_gpu
        self._op = SHORT_QUERY if cell.shape.q_len < _SHORT else "attention"
        self._said: list[str] = []

    def run(self, span: Span) -> None:
        with span(self._op), overhearing(_CHOICE, logging.DEBUG, self._hear), declining(_NO):
            self._inputs.run(self._attend)

    def claimed(self) -> Mapping[str, str]:
        return {self._op: self._said[-1]} if self._said else {}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        claim, unmet = self.claimed().get(self._op), decode_unmet(self._cell)
        # Where this torch does not log its choice, only an unmet condition says that it was not the decode template.
        if not self._on_gpu or self._op != SHORT_QUERY or claim == "flex:decode" or not (claim or unmet):
            return {}
        known = unmet or (Said("kaudit: none of the conditions that we know of is unmet"),)
        return {self._op: (Rejection("flex:decode", "asked", known),)}

    def _hear(self, record: logging.LogRecord) -> None:
        decodes = isinstance(record.args, tuple) and bool(record.args[0])
        self._said.append("flex:decode" if decodes else "flex:main")


def is_main(cell: Cell, kernels: Sequence[Kernel]) -> bool:
    """Whether a template kernel is the main one; the two have one name.

    Grids: (q blocks, batch, q_heads) for the main template, (q blocks, batch * kv_heads, splits) for decode, before
    torch 2.13 without the q blocks. With one KV head and as many splits as q heads they agree; then what combines the
    splits, a kernel behind it, tells. Those before it make the block mask.
    """
    main = (cell.shape.batch, cell.heads.q)
    grids = [kernel.grid for kernel in kernels if _TEMPLATE.search(kernel.name)]
    behind = dropwhile(lambda kernel: not _TEMPLATE.search(kernel.name), kernels)
    combined = cell.heads.kv == 1 and any(_COMBINE.search(kernel.name) for kernel in behind)
    return not combined and all(grid is not None and grid[1:] == main for grid in grids)


def decode_unmet(cell: Cell) -> tuple[Unmet, ...]:
    """What flex_decoding.py asks of a call with a short query and a cell can miss; what this adapter always meets is
    left out. It logs its answer, but not that condition."""
    ratio = cell.heads.q // cell.heads.kv
    return (mirrored("gqa_ratio", str(ratio), "a power of 2"),) if ratio & (ratio - 1) else ()
