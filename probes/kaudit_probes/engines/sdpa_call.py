"""Calls of scaled_dot_product_attention: a cell's own, and others that must come to the same result."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines.batches import DTYPES, normal, visible
from kaudit_probes.oracle import Attention, Request, Rules

# One call, said in other words: ops that share the name before "=" compute the same, so one kernel family should serve
# them all.
EXPANDED_HEADS = "attention=expanded_heads"
EXPLICIT_MASK = "attention=explicit_mask"
BROADCAST_HEAD = "attention=broadcast_head"
OPS = ("attention", EXPANDED_HEADS, EXPLICIT_MASK, BROADCAST_HEAD)


@dataclass(frozen=True)
class Arguments:
    """q: [batch, q_heads, q_len, dim]; k: [batch, kv_heads, kv_len, dim]; v: [batch, kv_heads, kv_len, v_dim].

    mask: bool, True where the query sees the key, broadcastable to [batch, q_heads, q_len, kv_len].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    gqa: bool

    def run(self) -> Tensor:
        """[batch, q_heads, q_len, v_dim]."""
        return scaled_dot_product_attention(
            self.q, self.k, self.v, attn_mask=self.mask, is_causal=self.causal, enable_gqa=self.gqa
        )

    def choice(self) -> int:
        """The SDPBackend that torch says it takes. Raises RuntimeError where no enabled one would."""
        return torch._fused_sdp_choice(
            self.q, self.k, self.v, attn_mask=self.mask, is_causal=self.causal, enable_gqa=self.gqa
        )


def calls(cell: Cell, device: str) -> dict[str, Arguments]:
    """Per op, in the order in which they run."""
    batch, heads = cell.shape.batch, cell.heads
    dtype, group = DTYPES[cell.dtype], heads.q // heads.kv
    own = Arguments(
        q=_given(cell, device, dtype, (batch, heads.q, cell.shape.q_len, heads.dim), 0),
        k=_given(cell, device, dtype, (batch, heads.kv, cell.shape.kv_len, heads.dim), 1),
        v=_given(cell, device, dtype, (batch, heads.kv, cell.shape.kv_len, heads.v_dim), 2),
        mask=None if sees_all(cell) or square(cell) else _mask(cell, device),
        causal=square(cell) and not sees_all(cell),
        gqa=group > 1,
    )
    made = {"attention": own}
    if group > 1:
        k, v = (tensor.repeat_interleave(group, dim=1) for tensor in (own.k, own.v))
        made[EXPANDED_HEADS] = replace(own, k=k, v=v, gqa=False)
    if cell.mask.kind == "causal" and own.mask is None:
        made[EXPLICIT_MASK] = replace(own, mask=_mask(cell, device), causal=False)
    if heads.kv == 1 and group > 1:
        made[BROADCAST_HEAD] = replace(own, gqa=False)
    return made


def _given(cell: Cell, device: str, dtype: torch.dtype, shape: tuple[int, int, int, int], seed: int) -> Tensor:
    """[batch, heads, tokens, dim] as a caller may have it. `transposed`: tokens before heads, as a projection leaves
    them; `sliced`: a part of wider rows, as of packed Q, K and V; `broadcast`: K and V of one head, expanded to all."""
    batch, heads, tokens, dim = shape
    if "transposed" in cell.features:
        return normal(device, dtype, batch, tokens, heads, dim, seed=seed).transpose(1, 2)
    if "sliced" in cell.features:
        return normal(device, dtype, batch, heads, tokens, 3 * dim, seed=seed)[..., dim : 2 * dim]
    if "broadcast" in cell.features and seed:
        return normal(device, dtype, batch, 1, tokens, dim, seed=seed).expand(shape)
    return normal(device, dtype, *shape, seed=seed)


def _mask(cell: Cell, device: str) -> Tensor:
    """Not waited for, which cost a third of a small cell where 16 probes shared an H200 (1.6 of 5.7 ms): torch keeps
    pinned memory until it is copied."""
    mask = padded_mask(cell)
    return mask.pin_memory().to(device, non_blocking=True) if device == "cuda" else mask


def attention_of(cell: Cell, own: Arguments) -> Attention:
    """What the cell's own call should come to: each request without its padding."""

    def requests() -> Iterator[Request]:
        for number, (q_len, kv_len) in enumerate(zip(q_lens(cell), kv_lens(cell), strict=True)):
            q, k, v = own.q[number, :, :q_len], own.k[number, :, :kv_len], own.v[number, :, :kv_len]
            given = visible(cell.mask, q_len, kv_len) if cell.mask.kind == "custom" else None
            yield Request(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), given)

    return Attention(requests, Rules(cell.mask, cell.heads.dim**-0.5))


def tokens_of(cell: Cell, out: Tensor) -> Tensor:
    """From [batch, q_heads, q_len, v_dim], without padding, one request after another: [tokens, q_heads, v_dim]."""
    return torch.cat([of_one[:, :q_len].transpose(0, 1) for of_one, q_len in zip(out, q_lens(cell), strict=True)])


def sees_all(cell: Cell) -> bool:
    """Whether every query sees every key: then no caller passes a mask."""
    if len(set(kv_lens(cell))) > 1:
        return False
    match cell.mask.kind:
        case "none":
            return True
        case "causal" | "tree":
            return cell.shape.q_len == 1
        case "window":
            return cell.shape.q_len == 1 and cell.shape.kv_len <= cell.mask.window
    return False


def square(cell: Cell) -> bool:
    """Whether is_causal says the mask: torch aligns it top-left, a cell bottom-right; the same if q_len is kv_len."""
    even = len(set(kv_lens(cell))) == 1
    return cell.mask.kind == "causal" and even and cell.shape.q_len == cell.shape.kv_len


def padded_mask(cell: Cell) -> Tensor:
    """[1 or batch, 1, q_len, kv_len] on the CPU. Requests are padded behind their tokens; padding sees the first key.

    A row that sees nothing would be NaN: that is no difference between back ends that an audit wants to see.
    """
    lens = list(zip(q_lens(cell), kv_lens(cell), strict=True))
    if len(set(lens)) == 1:
        return visible(cell.mask, *lens[0])[None, None]
    mask = torch.zeros(len(lens), 1, cell.shape.q_len, cell.shape.kv_len, dtype=torch.bool)
    for request, (q_len, kv_len) in enumerate(lens):
        mask[request, 0, :q_len, :kv_len] = visible(cell.mask, q_len, kv_len)
        mask[request, 0, q_len:, 0] = True
    return mask
