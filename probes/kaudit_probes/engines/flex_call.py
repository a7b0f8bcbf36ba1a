"""Calls of flex_attention: a cell's mask and softcap as the functions that it compiles into its kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines.batches import DTYPES, SOFTCAP, normal
from kaudit_probes.engines.sdpa_call import padded_mask, sees_all

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Attend = Callable[[Tensor, Tensor, Tensor, ScoreMod | None, BlockMask | None, bool], Tensor]

_serial = count()


@dataclass(frozen=True)
class Arguments:
    """q: [batch, q_heads, q_len, dim]; k: [batch, kv_heads, kv_len, dim]; v: [batch, kv_heads, kv_len, v_dim]."""

    q: Tensor
    k: Tensor
    v: Tensor
    score_mod: ScoreMod | None
    block_mask: BlockMask | None
    gqa: bool

    def run(self, attend: Attend) -> Tensor:
        """[batch, q_heads, q_len, v_dim]."""
        return attend(self.q, self.k, self.v, self.score_mod, self.block_mask, self.gqa)


def arguments(cell: Cell, device: str) -> Arguments:
    heads, shape, dtype = cell.heads, cell.shape, DTYPES[cell.dtype]
    return Arguments(
        q=normal(device, dtype, shape.batch, heads.q, shape.q_len, heads.dim),
        k=normal(device, dtype, shape.batch, heads.kv, shape.kv_len, heads.dim, seed=1),
        v=normal(device, dtype, shape.batch, heads.kv, shape.kv_len, heads.v_dim, seed=2),
        score_mod=_softcap if "softcap" in cell.features else None,
        block_mask=None if sees_all(cell) else _block_mask(cell, device),
        gqa=heads.q > heads.kv,
    )


def compiled() -> Attend:
    """flex_attention, to be compiled for one cell alone.

    Dynamo keeps what it compiles with the code object and would, on the second shape, compile one kernel for all
    batch sizes, which is never the decode template. So each cell gets a code object of its own, under its own name.
    (torch._dynamo.reset() before each cell would throw away the kernels of the cells beside it in the batch.)
    """

    def attend(
        q: Tensor, k: Tensor, v: Tensor, score_mod: ScoreMod | None, block_mask: BlockMask | None, gqa: bool
    ) -> Tensor:
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=gqa)

    attend.__code__ = attend.__code__.replace(co_name=f"attend_{next(_serial)}")
    return torch.compile(attend, dynamic=False)


def _softcap(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
    return SOFTCAP * torch.tanh(score / SOFTCAP)


def _block_mask(cell: Cell, device: str) -> BlockMask:
    per_request = len(set(kv_lens(cell))) > 1
    if cell.mask.kind in ("custom", "tree"):
        mask_mod = _table(padded_mask(cell).to(device), per_request)
    else:
        mask_mod = _skewed(cell, device) if per_request else _even(cell)
    shape = cell.shape
    return create_block_mask(mask_mod, shape.batch if per_request else None, None, shape.q_len, shape.kv_len, device)


def _even(cell: Cell) -> MaskMod:
    """Queries are the last q_len of the kv_len tokens."""
    earlier, window = cell.shape.kv_len - cell.shape.q_len, cell.mask.window

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return key <= query + earlier

    def windowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return (key <= query + earlier) & (key > query + earlier - window)

    return windowed if cell.mask.kind == "window" else causal


def _skewed(cell: Cell, device: str) -> MaskMod:
    """As _even, for requests of different lengths, padded behind their tokens."""
    kind, window = cell.mask.kind, cell.mask.window
    length = torch.tensor(kv_lens(cell), device=device)
    earlier = length - torch.tensor(q_lens(cell), device=device)

    def within(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        seen = key < length[batch]
        if kind != "none":
            seen = seen & (key <= query + earlier[batch])
        return seen & (key > query + earlier[batch] - window) if kind == "window" else seen

    return within


def _table(mask: Tensor, per_request: bool) -> MaskMod:
    """Looks each pair up in [1 or batch, 1, q_len, kv_len]."""

    def listed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return mask[batch, 0, query, key] if per_request else mask[0, 0, query, key]

    return listed
