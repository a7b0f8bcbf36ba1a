"""xFormers' memory_efficient_attention behind the Engine protocol: the op that it dispatches to, and why no faster one.

Its ops state what they need as data, and not_supported_reasons() answers with all that is unmet: the reasons here are
xFormers' own texts. It never falls back to eager: what no op takes is refused.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Refused, Rejection, Said, Skipped
from kaudit_probes.engines import Heard, Path, Span, importing
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.xformers_inputs import inputs_of
from kaudit_probes.engines.xformers_ops import check_built, check_loads, name_of, order, orders, reasons, tried

# fa2F is flash-attn's or, where that is not installed, the copy in torch; cutlassF is torch's.
_SHOWS: Mapping[str, str] = {
    "fa3F": r"\bflash::FlashAttnFwdSm(90|80)",
    "fa2F": r"\b(pytorch_)?flash::flash_fwd_(splitkv_)?kernel",
    "cutlassF": r"fmha_cutlassF",
    "triton_splitKF": r"^_fwd_kernel_splitK",
}


class XformersEngine:
    name = "xformers"
    refusals = (Declined,)  # its ValueErrors are about calls that no caller should make
    environment = ("XFORMERS_IGNORE_FLASH_VERSION_CHECK",)

    def __init__(self, device: str) -> None:
        self.require()
        import xformers
        from xformers.ops import fmha

        if device != "cuda":
            raise UserError(f"--engine {self.name}: xFormers needs an NVIDIA GPU; run it where torch sees one")
        self._device, self._version = device, str(xformers.__version__)
        self._switches = {
            "xformers.use_fa3": str(fmha.dispatch._get_use_fa3()),
            # With the versions of the FlashAttention libraries behind them: `fa3F@0.0.0` is none at all.
            "xformers.ops": " ".join(op.NAME for op in fmha.ALL_FW_OPS),
        }
        check_built(self._version, device)
        self._ops = orders(device)
        unknown = {name for names in self._ops for name in names} - _SHOWS.keys()
        if unknown:
            raise self._unknown(f"tries {min(unknown)}")

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol."""
        with importing(cls.name):
            import xformers
            from xformers.ops import fmha  # noqa: F401
        check_loads(str(xformers.__version__))

    def revision(self) -> str:
        return f"{self._version}-torch{torch.__version__}"

    def switches(self) -> Mapping[str, str]:
        return self._switches

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {op: tuple(Path(_path(name), (_SHOWS[name],)) for name in names) for names, op in self._ops.items()}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        why = _inexpressible(cell)
        return Skipped(why) if why else None

    def prepare(self, cell: Cell) -> "_Call":
        inputs = inputs_of(cell, self._device)
        names = order(inputs)
        if names not in self._ops:
            raise self._unknown(f"tries {', '.join(names)} for {cell.id}, in an order")
        return _Call(self._ops[names], inputs)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002 - it says nothing
        return {}

    def _unknown(self, what: str) -> UserError:
        return UserError(
            f"--engine {self.name}: xformers {self._version} {what} that this adapter does not know; "
            "install 0.0.35 where --python points"
        )


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
    def __init__(self, op: str, inputs: Any) -> None:
        self._op, self._inputs = op, inputs

    def run(self, span: Span) -> None:
        from xformers.ops import memory_efficient_attention_forward

        given = self._inputs
        with span(self._op):
            try:
                memory_efficient_attention_forward(given.query, given.key, given.value, given.attn_bias)
            except NotImplementedError as error:
                if not str(error).startswith("No operator found"):
                    raise
                raise Declined(_no_operator(given)) from error

    def claimed(self) -> Mapping[str, str]:
        return {self._op: _path(self._chosen())}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        chosen = self._chosen()
        faster = takewhile(lambda op: name_of(op) != chosen, tried(self._inputs))
        return {self._op: tuple(turned_down(op, self._inputs) for op in faster)}

    def _chosen(self) -> str:
        from xformers.ops import fmha

        return name_of(fmha.dispatch._dispatch_fw(self._inputs, False))


def turned_down(op: Any, inputs: Any) -> Rejection:
    return Rejection(_path(name_of(op)), "asked", tuple(Said(text) for text in reasons(op, inputs)))


def _no_operator(inputs: Any) -> str:
    """What each op is missing, on one line: xFormers tells the inputs on its first, and this on the lines behind."""
    return "; ".join(f"{name_of(op)}: {', '.join(reasons(op, inputs))}" for op in tried(inputs))


def _path(name: str) -> str:
    return f"xformers:{name}"
