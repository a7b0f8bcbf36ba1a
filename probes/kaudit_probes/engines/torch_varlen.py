"""torch.nn.attention.varlen: attention over ragged and paged K and V, by the FlashAttention in torch, or cuDNN.

cuDNN is its choice for long queries on Hopper and Blackwell since torch 2.14. It logs which one it takes, at INFO on a
logger that torch keeps at WARNING: nobody hears that unasked, so it is its claim and no announcement.
"""

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import signature
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Refused, Rejection, Said, Skipped, Unmet
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines import Heard, Path, Span, mirrored
from kaudit_probes.engines.batches import DTYPES, Pages, normal, offsets
from kaudit_probes.engines.declined import FLASH_ATTENTION, Declined, declining
from kaudit_probes.engines.torch_attention import SHORT_QUERY, overhearing, revision, untold
from kaudit_probes.numerics import Computed
from kaudit_probes.oracle import Attention, Request, Rules
from kaudit_probes.poison import run_over_poison

_CUDNN = Path("varlen:cudnn", (r"cudnn_\w*sdpa",))
_FLASH = Path("varlen:flash", (r"flash_fwd_(splitkv_)?kernel|FlashAttnFwdSm|FlashAttentionForward",))

_CHOICE = "torch.nn.attention.varlen"
_CLAIMS = {
    "Using cuDNN backend for varlen_attn": _CUDNN.name,
    "Using Flash Attention backend for varlen_attn": _FLASH.name,
}
_SHORT = 128
"""Where no query of a batch has more tokens, torch does not ask for cuDNN."""


class VarlenEngine:
    name = "torch-varlen"
    refusals = (Declined, NotImplementedError)
    environment = ()

    def __init__(self, device: str) -> None:
        self.require()
        self._device = device
        varlen = import_module("torch.nn.attention.varlen")
        self._attend = varlen.varlen_attn
        # Before 2.14 there is code for cuDNN, which nothing reaches.
        self._reaches_cudnn = hasattr(varlen, "_can_use_cudnn")
        # Each torch since 2.10 has given it more arguments.
        self._takes = frozenset(signature(self._attend).parameters)

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol."""
        try:
            import_module("torch.nn.attention.varlen")
        except ImportError:
            raise UserError(
                f"--engine {cls.name}: torch {torch.__version__} has no torch.nn.attention.varlen; install 2.10"
            ) from None

    def revision(self) -> str:
        return revision()

    def switches(self) -> Mapping[str, str]:
        current = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)
        return {"varlen.flash_impl": current() or "built in", "varlen.takes": " ".join(sorted(self._takes))}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        if not self._reaches_cudnn:
            return {"attention": (_FLASH,), SHORT_QUERY: (_FLASH,)}
        return {"attention": (_CUDNN, _FLASH), SHORT_QUERY: (_FLASH, _CUDNN)}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        why = untold(cell, "varlen_attn", set()) or self._missing(cell)
        return Skipped(why) if why else None

    def _missing(self, cell: Cell) -> str | None:
        if cell.layout.kind == "contiguous":
            return "varlen_attn takes ragged or paged k and v; write even lengths as ragged"
        if cell.mask.kind in ("custom", "tree"):
            return "varlen_attn takes a window, no mask"
        if cell.heads.v_dim != cell.heads.dim:
            return "varlen_attn takes one head dim for q, k and v"
        needs = {"window_size"} if cell.mask.kind == "window" else set()
        needs |= {"block_table", "seqused_k"} if cell.layout.kind == "paged" else set()
        absent = sorted(needs - self._takes)
        return f"varlen_attn of torch {torch.__version__} has no {' and no '.join(absent)}" if absent else None

    def prepare(self, cell: Cell) -> "_Call":
        given = arguments(cell, self._device, self._takes)
        return _Call(cell, self._attend, given, self._reaches_cudnn)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002 - its word is a claim
        return {}


class _Call:
    def __init__(self, cell: Cell, attend: Any, given: Mapping[str, Any], reaches_cudnn: bool) -> None:
        self._cell, self._attend, self._given, self._reaches_cudnn = cell, attend, given, reaches_cudnn
        self._op = SHORT_QUERY if max(q_lens(cell)) <= _SHORT else "attention"
        self._said: list[str] = []

    def run(self, span: Span) -> None:
        with span(self._op), overhearing(_CHOICE, logging.INFO, self._hear), declining(FLASH_ATTENTION):
            self._attend(**self._given)

    def claimed(self) -> Mapping[str, str]:
        return {self._op: self._said[-1]} if self._said else {}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        claim = self.claimed().get(self._op)
        if not self._reaches_cudnn or self._op == SHORT_QUERY or claim == _CUDNN.name:
            return {}
        known = cudnn_unmet(self._cell) or (Said("kaudit: the cell meets all the conditions that we know of"),)
        return {self._op: (Rejection(_CUDNN.name, "asked", known),)}

    def numbers(self) -> list[Computed]:
        """The output, and FlashAttention's log-sum-exp, which is made in any case, and given to who asks."""
        lse: list[Tensor] = []

        def run() -> Tensor:
            if self.claimed().get(self._op) != _FLASH.name:
                return self._attend(**self._given)  # type: ignore[no-any-return]
            asked = import_module("torch.nn.attention.varlen").AuxRequest(lse=True)
            out, found = self._attend(**self._given, return_aux=asked)
            lse[:] = [found]
            return out  # type: ignore[no-any-return]

        with declining(FLASH_ATTENTION):
            out = run_over_poison(run)
        # [q_heads, tokens], whatever its docstring says.
        return [Computed(self._op, out, attention_of(self._cell, self._given), lse[0].T if lse else None)]

    def _hear(self, record: logging.LogRecord) -> None:
        claim = _CLAIMS.get(record.getMessage())
        if claim is not None:
            self._said.append(claim)


def cudnn_unmet(cell: Cell) -> tuple[Unmet, ...]:
    """_can_use_cudnn of torch 2.14, which answers a bare boolean, as far as it asks for what a cell of a long query
    says."""
    heads = cell.heads
    unmet = []
    if heads.dim % 8:
        unmet.append(mirrored("head_dim", str(heads.dim), "a multiple of 8"))
    if cell.dtype not in ("fp16", "bf16"):
        unmet.append(mirrored("dtype", cell.dtype, "fp16 or bf16"))
    if cell.mask.kind != "none":
        unmet.append(mirrored("mask", str(cell.mask), "none: to it a causal mask is a window"))
    if heads.q != heads.kv:
        unmet.append(mirrored("gqa_ratio", str(heads.q // heads.kv), "as many KV heads as query heads"))
    return tuple(unmet)


def arguments(cell: Cell, device: str, takes: frozenset[str]) -> dict[str, Any]:
    """query: [q tokens, q_heads, dim]; key and value: [kv tokens, kv_heads, dim], or [pages, page, kv_heads, dim]."""
    heads, dtype, page = cell.heads, DTYPES[cell.dtype], cell.layout.page
    queries, keys = q_lens(cell), kv_lens(cell)
    given: dict[str, Any] = {
        "query": normal(device, dtype, sum(queries), heads.q, heads.dim),
        "cu_seq_q": offsets(queries).to(device),
        "cu_seq_k": offsets(keys).to(device),
        "max_q": max(queries),
        "max_k": max(keys),
    }
    if cell.layout.kind == "paged":
        table = Pages.of(keys, page).table()
        shape = [int(table.max()) + 1, page, heads.kv, heads.dim]
        given["block_table"] = table.to(device)
        given["seqused_k"] = torch.tensor(keys, dtype=torch.int32, device=device)
    else:
        shape = [sum(keys), heads.kv, heads.dim]
    given |= {"key": normal(device, dtype, *shape, seed=1), "value": normal(device, dtype, *shape, seed=2)}
    if heads.q > heads.kv and "enable_gqa" in takes:  # where it is no argument, the kernel shares heads unasked
        given["enable_gqa"] = True
    return given | _mask(cell, takes)


def attention_of(cell: Cell, given: Mapping[str, Any]) -> Attention:
    """What varlen_attn should come to with these arguments."""

    def requests() -> Iterator[Request]:
        starts = pairwise(offsets(q_lens(cell)).tolist()), pairwise(offsets(kv_lens(cell)).tolist())
        for number, (own, held) in enumerate(zip(*starts, strict=True)):
            k, v = given["key"], given["value"]
            if "block_table" in given:
                # Rows of the table are filled up with pages of others: the length tells how far it goes.
                k, v = (pool[given["block_table"][number].long()].flatten(0, 1)[: held[1] - held[0]] for pool in (k, v))
            else:
                k, v = k[slice(*held)], v[slice(*held)]
            yield Request(given["query"][slice(*own)], k, v)

    return Attention(requests, Rules(cell.mask, cell.heads.dim**-0.5), cell.layout.page)


def _mask(cell: Cell, takes: frozenset[str]) -> dict[str, Any]:
    """Both are aligned bottom-right; a window counts the keys before the query's own."""
    match cell.mask.kind:
        case "causal" if "window_size" not in takes:
            return {"is_causal": True}
        case "causal":
            return {"window_size": (-1, 0)}
        case "window":
            return {"window_size": (cell.mask.window - 1, 0)}
    return {}
