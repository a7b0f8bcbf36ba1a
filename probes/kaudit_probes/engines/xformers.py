"""xFormers' memory_efficient_attention behind the Engine protocol: the op that it dispatches to, and why no faster one.

Its ops state what they need as data, and not_supported_reasons() answers with all that is unmet: the reasons here are
xFormers' own texts. It never falls back to eager: what no op takes is refused.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch

from kaudit.cell import Cell
from kaudit.observation import Refused, Rejection, Said, Skipped
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines import Heard, Path, Span, importing
from kaudit_probes.engines.batches import DTYPES, normal
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.xformers_bias import bias, kv_rows

# In the order of fmha/dispatch.py; split K comes first only for few queries over many keys of shared heads.
_PATHS = (
    Path("xformers:fa3F", (r"flash::FlashAttnFwdSm(90|80)",)),
    Path("xformers:fa2F", (r"flash::flash_fwd_(splitkv_)?kernel",)),
    Path("xformers:cutlassF", (r"fmha_cutlassF",)),
    Path("xformers:triton_splitKF", (r"_fwd_kernel_splitK",)),
)

_SET = re.compile(r"\{([^{}]*)\}")


class XformersEngine:
    name = "xformers"
    refusals = (Declined,)  # its ValueErrors are about calls that no caller should make
    environment = ("XFORMERS_IGNORE_FLASH_VERSION_CHECK",)

    def __init__(self, device: str) -> None:
        with importing(self.name):
            import xformers
            from xformers.ops import fmha
        self._version = str(xformers.__version__)
        self._fa3 = str(fmha.dispatch._get_use_fa3())
        self._device = device

    def revision(self) -> str:
        return f"{self._version}-torch{torch.__version__}"

    def switches(self) -> Mapping[str, str]:
        return {"xformers.use_fa3": self._fa3}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": _PATHS}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        why = _inexpressible(cell)
        return Skipped(why) if why else None

    def prepare(self, cell: Cell) -> "_Call":
        from xformers.ops.fmha.common import Inputs

        heads, dtype, group = cell.heads, DTYPES[cell.dtype], cell.heads.q // cell.heads.kv
        packed = cell.layout.kind != "contiguous" or len(set(kv_lens(cell))) > 1
        q_rows = (1, sum(q_lens(cell))) if packed else (cell.shape.batch, cell.shape.q_len)
        rows = (1, kv_rows(cell)) if packed else (cell.shape.batch, cell.shape.kv_len)
        q = normal(self._device, dtype, *q_rows, heads.kv, group, heads.dim)
        k = normal(self._device, dtype, *rows, heads.kv, 1, heads.dim).expand(*rows, heads.kv, group, heads.dim)
        v = normal(self._device, dtype, *rows, heads.kv, 1, heads.v_dim).expand(*rows, heads.kv, group, heads.v_dim)
        if group == 1:
            q, k, v = (tensor.squeeze(3) for tensor in (q, k, v))
        return _Call(Inputs(q, k, v, attn_bias=bias(cell, self._device)))

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002 - it says nothing
        return {}


def _inexpressible(cell: Cell) -> str | None:
    if cell.features:
        return f"memory_efficient_attention has no argument for {' and '.join(cell.features)}"
    if cell.dtype == "fp8_e4m3" or cell.kv_dtype != cell.dtype:
        return "this adapter gives memory_efficient_attention q, k and v of one dtype, and not fp8"
    if cell.mask.kind in ("custom", "tree"):
        return "this adapter gives memory_efficient_attention no tensor bias"
    if cell.mask.kind == "window" and cell.layout.kind == "paged":
        return "this adapter gives memory_efficient_attention no bias for a window over pages"
    if cell.rope.style != "none":
        return "attention takes q and k after RoPE: write rope: none"
    return None


class _Call:
    def __init__(self, inputs: Any) -> None:
        self._inputs = inputs

    def run(self, span: Span) -> None:
        from xformers.ops import memory_efficient_attention_forward

        given = self._inputs
        with span("attention"):
            try:
                memory_efficient_attention_forward(given.query, given.key, given.value, given.attn_bias)
            except NotImplementedError as error:
                if not str(error).startswith("No operator found"):
                    raise
                raise Declined(_no_operator(given)) from error

    def claimed(self) -> Mapping[str, str]:
        from xformers.ops import fmha

        return {"attention": _path(fmha.dispatch._dispatch_fw(self._inputs, False))}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        from xformers.ops import fmha

        chosen = self.claimed()["attention"]
        names = [path.name for path in _PATHS]
        faster = names[: names.index(chosen)] if chosen in names else names
        ops = {_path(op): op for op in fmha.ALL_FW_OPS}
        return {"attention": tuple(_turned_down(path, ops[path], self._inputs) for path in faster if path in ops)}


def _no_operator(inputs: Any) -> str:
    """What each op is missing, on one line: xFormers tells the inputs on its first, and this on the lines behind."""
    from xformers.ops import fmha

    return "; ".join(f"{_name(op)}: {', '.join(_reasons(op, inputs))}" for op in fmha.ALL_FW_OPS)


def _reasons(op: Any, inputs: Any) -> list[str]:
    """Sets of dtypes in them come out in an order that changes from process to process: sorted."""
    return [_SET.sub(_sorted, text) for text in op.not_supported_reasons(inputs)]


def _sorted(members: re.Match[str]) -> str:
    return f"{{{', '.join(sorted(members[1].split(', ')))}}}"


def _turned_down(path: str, op: Any, inputs: Any) -> Rejection:
    reasons = tuple(Said(text) for text in _reasons(op, inputs))
    passed_over = Said("kaudit: it takes these inputs; xFormers' order for them has another first, or leaves it out")
    return Rejection(path, "asked", reasons or (passed_over,))


def _path(op: Any) -> str:
    return f"xformers:{_name(op)}"


def _name(op: Any) -> str:
    """`fa2F@2.5.7-pt` is fa2F, of the FlashAttention in torch."""
    return str(op.NAME).split("@")[0].removesuffix("-pt")
