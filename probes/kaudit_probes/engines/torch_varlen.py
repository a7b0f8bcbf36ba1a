"""torch.nn.attention.varlen: attention over ragged and paged K and V, by the FlashAttention in torch."""

from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from typing import Any

import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Refused, Rejection, Skipped
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.engines.batches import DTYPES, Pages, kv_lens, normal, offsets, q_lens
from kaudit_probes.engines.declined import FLASH_ATTENTION, Declined, declining
from kaudit_probes.engines.torch_attention import revision, untold

_FLASH = Path("varlen:flash", (r"flash_fwd_(splitkv_)?kernel|FlashAttnFwdSm|FlashAttentionForward",))


class VarlenEngine:
    name = "torch-varlen"
    refusals = (Declined, NotImplementedError)
    environment = ()

    def __init__(self, device: str) -> None:
        self._device = device
        try:
            self._attend = import_module("torch.nn.attention.varlen").varlen_attn
        except ImportError:
            raise UserError(
                f"--engine {self.name}: torch {torch.__version__} has no torch.nn.attention.varlen; install 2.10"
            ) from None
        # Each torch since 2.10 has given it more arguments.
        self._takes = frozenset(signature(self._attend).parameters)

    def revision(self) -> str:
        return revision()

    def switches(self) -> Mapping[str, str]:
        current = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)
        return {"varlen.flash_impl": current() or "built in", "varlen.takes": " ".join(sorted(self._takes))}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (_FLASH,)}

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
        return _Call(self._attend, arguments(cell, self._device, self._takes))

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002
        """There is one path: nothing is turned down for it."""
        return {}


class _Call:
    def __init__(self, attend: Any, given: Mapping[str, Any]) -> None:
        self._attend = attend
        self._given = given

    def run(self, span: Span) -> None:
        with span("attention"), declining(FLASH_ATTENTION):
            self._attend(**self._given)

    def claimed(self) -> Mapping[str, str]:
        return {}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {}


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
    given |= {"key": normal(device, dtype, *shape), "value": normal(device, dtype, *shape)}
    if heads.q > heads.kv and "enable_gqa" in takes:  # where it is no argument, the kernel shares heads unasked
        given["enable_gqa"] = True
    return given | _mask(cell, takes)


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
