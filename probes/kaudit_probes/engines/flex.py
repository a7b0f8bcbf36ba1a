"""torch's FlexAttention, compiled, as its documentation says to use it."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch._inductor.config
from torch.nn.attention import flex_attention

from kaudit.cell import Cell
from kaudit.observation import Kernel, Refused, Rejection, Said, Skipped, Unmet
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.engines.declined import Declined, declining
from kaudit_probes.engines.flex_call import Arguments, Attend, arguments, compiled
from kaudit_probes.engines.torch_attention import revision, untold

_TEMPLATE = re.compile(r"^triton_tem_")
_COMBINE = re.compile(r"^triton_(per|red|poi)_")

# Each lowering says here whether it takes the decode template; at DEBUG, so nobody who runs it hears that.
_CHOICE = logging.getLogger("torch._inductor.kernel.flex.flex_decoding")
# What its lowering raises to say no; inductor wraps that in an error of its own.
_NO = re.compile(r"(?<=NotImplementedError: ).*")
_UNCOMPILED = "flex_attention called without torch.compile()"


class FlexEngine:
    name = "flex"
    refusals = (Declined, NotImplementedError)
    environment = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE")

    def __init__(self, device: str) -> None:
        self._device = device
        # A kernel out of a cache is lowered by nobody: then the choice of template would be said in some runs alone.
        torch._inductor.config.force_disable_caches = True

    def revision(self) -> str:
        return revision()

    def switches(self) -> Mapping[str, str]:
        return {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "inductor.max_autotune": str(torch._inductor.config.max_autotune),
        }

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        unfused = Path("flex:unfused")
        if self._device == "cpu":
            # Generated C++ runs no ATen op: torch's event around the compiled graph is what shows it.
            return {"attention": (Path("flex:main", (r"^## Call CompiledFxGraph",)), unfused)}
        decode = Path("flex:decode", (_TEMPLATE.pattern,), lambda cell, kernels: not is_main(cell, kernels))
        main = Path("flex:main", (_TEMPLATE.pattern,), is_main)
        return {"attention": (decode, main, unfused)}

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
        if said is None:
            return {}
        fused = [path.name for path in self.paths()["attention"][:-1]]
        return {"attention": tuple(Rejection(path, "announced", (Said(said.splitlines()[0]),)) for path in fused)}


class _Call:
    def __init__(self, cell: Cell, inputs: Arguments, attend: Attend, on_gpu: bool) -> None:
        self._cell, self._inputs, self._attend, self._on_gpu = cell, inputs, attend, on_gpu
        self._said: list[str] = []

    def run(self, span: Span) -> None:
        with span("attention"), _choices(self._said), declining(_NO):
            self._inputs.run(self._attend)

    def claimed(self) -> Mapping[str, str]:
        return {"attention": self._said[-1]} if self._said else {}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        if not self._on_gpu or self.claimed().get("attention") == "flex:decode":
            return {}
        unmet = decode_unmet(self._cell)
        known = unmet or (Said("kaudit: none of the conditions that we know of is unmet"),)
        return {"attention": (Rejection("flex:decode", "asked", known),)}


def is_main(cell: Cell, kernels: Sequence[Kernel]) -> bool:
    """Whether a template kernel is the main one; the two have one name.

    Grids: (q blocks, batch, q_heads) for the main template, (q blocks, batch * kv_heads, splits) for decode. With one
    KV head and as many splits as q heads they agree; then what combines the splits, a kernel behind it, tells.
    """
    main = (cell.shape.batch, cell.heads.q)
    grids = [kernel.grid for kernel in kernels if _TEMPLATE.search(kernel.name)]
    combined = cell.heads.kv == 1 and any(_COMBINE.search(kernel.name) for kernel in kernels)
    return not combined and all(grid is not None and grid[1:] == main for grid in grids)


def decode_unmet(cell: Cell) -> tuple[Unmet, ...]:
    """What flex_decoding.py asks of a call and a cell can miss; what this adapter always meets is left out."""
    q_len, ratio = cell.shape.q_len, cell.heads.q // cell.heads.kv
    unmet = []
    if q_len >= 128:
        unmet.append(Unmet("q_len", str(q_len), "less than 128"))
    if ratio & (ratio - 1):
        unmet.append(Unmet("gqa_ratio", str(ratio), "a power of 2"))
    return tuple(unmet)


@contextmanager
def _choices(said: list[str]) -> Iterator[None]:
    """Adds the template of each lowering that happens meanwhile."""
    handler = logging.Handler()
    handler.emit = lambda record: said.append("flex:decode" if _decodes(record) else "flex:main")  # type: ignore[method-assign]
    level, propagates = _CHOICE.level, _CHOICE.propagate
    _CHOICE.addHandler(handler)
    _CHOICE.setLevel(logging.DEBUG)
    _CHOICE.propagate = False
    try:
        yield
    finally:
        _CHOICE.removeHandler(handler)
        _CHOICE.setLevel(level)
        _CHOICE.propagate = propagates


def _decodes(record: logging.LogRecord) -> bool:
    return isinstance(record.args, tuple) and bool(record.args[0])
