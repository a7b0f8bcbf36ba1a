"""What each op should come to: the textbook, in float64, in no engine's words.

Float64, so that no switch of an engine (TF32, reduced-precision sums) reaches the oracle, and its own rounding is never
what a tolerance is spent on. Every op is computed from what the engine's op was given, so an error stays with its op.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kaudit.cell import Mask

_MOST_SCORES = 1 << 26
"""Scores in memory at a time: half a GiB."""


@dataclass(frozen=True)
class Request:
    """q: [q_len, q_heads, dim]; k: [kv_len, kv_heads, dim]; v: [kv_len, kv_heads, v_dim]: as the engine has them.

    The queries are the last q_len of the kv_len tokens. visible: [q_len, kv_len], True where the query sees the key: of
    a custom mask, which is an input; else None. past: K and V [tokens, kv_heads, dim] that stand behind the last token,
    up to the end of a page, which nobody may read; None where that is not known.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    visible: Tensor | None = None
    past: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Rules:
    """Scores are scaled, then capped, then masked; a sink is one more logit, neither scaled nor capped.

    sinks: [q_heads]. k_scale, v_scale: [kv_heads], by which what is stored is multiplied; None where nothing is.
    """

    mask: Mask
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None


@dataclass(frozen=True)
class Attention:
    """Attention over a batch. `requests` makes them anew at each call: a gathered cache need not stay in memory.

    page: tokens a page, 0 where K and V are not paged.
    """

    requests: Callable[[], Iterable[Request]]
    rules: Rules
    page: int = 0

    def compute(self) -> tuple[Tensor, Tensor]:
        """Over the tokens of all requests, one request after another: output [tokens, q_heads, v_dim], log-sum-exp
        [tokens, q_heads]."""
        outs, lses = zip(*(attend(request, self.rules) for request in self.requests()), strict=True)
        return torch.cat(outs), torch.cat(lses)


def attend(request: Request, rules: Rules, rows: range | None = None) -> tuple[Tensor, Tensor]:
    """One request: output [rows, q_heads, v_dim] and log-sum-exp [rows, q_heads], of all its rows or those asked for.

    KV head h serves the query heads h * group to h * group + group - 1. A query that sees nothing: 0 and -inf.
    """
    k, v = dequantised(request.k, rules.k_scale), dequantised(request.v, rules.v_scale)
    wanted = range(len(request.q)) if rows is None else rows
    step = max(1, _MOST_SCORES // (request.q.shape[1] * len(k)))
    outs, lses = [], []
    for start in range(wanted.start, wanted.stop, step):
        part = range(start, min(start + step, wanted.stop))
        q = request.q[part.start : part.stop].double()
        q = q.reshape(len(q), k.shape[1], -1, q.shape[-1])
        scores = torch.einsum("qhgd,khd->hgqk", q, k) * rules.scale
        if rules.softcap is not None:
            scores = rules.softcap * torch.tanh(scores / rules.softcap)
        sees = visible(rules.mask, request, part)
        if sees is not None:
            scores = scores.masked_fill(~sees, -torch.inf)
        lse = scores.logsumexp(-1)  # [kv_heads, group, rows]
        if rules.sinks is not None:
            lse = torch.logaddexp(lse, rules.sinks.double().view(*lse.shape[:2], 1))
        weights = torch.where(scores == -torch.inf, 0.0, (scores - lse[..., None]).exp())
        outs.append(torch.einsum("hgqk,khd->qhgd", weights, v).flatten(1, 2))
        lses.append(lse.flatten(0, 1).T)
    return torch.cat(outs), torch.cat(lses)


def visible(mask: Mask, request: Request, rows: range) -> Tensor | None:
    """[rows, kv_len], True where the query sees the key; None if each sees all."""
    q_len, kv_len, device = len(request.q), len(request.k), request.q.device
    before = kv_len - q_len
    own = before + torch.arange(rows.start, rows.stop, device=device)[:, None]
    behind = own - torch.arange(kv_len, device=device)
    match mask.kind:
        case "none":
            return None
        case "causal":
            return behind >= 0
        case "window":
            return (behind >= 0) & (behind < mask.window)
        case "tree":
            sees = torch.zeros(q_len, kv_len, dtype=torch.bool)
            sees[:, :before] = True
            for node in range(q_len):
                sees[node, [before + one for one in lineage(node)]] = True
            return sees[rows.start : rows.stop].to(device)
        case "custom":
            assert request.visible is not None, "a custom mask is an input"
            return request.visible[rows.start : rows.stop].to(device)


def lineage(node: int) -> list[int]:
    """The node of a binary tree in heap order (children of n: 2n + 1, 2n + 2), its parent, and so on to the root."""
    return [node, *lineage((node - 1) // 2)] if node else [0]


def dequantised(stored: Tensor, scale: Tensor | None) -> Tensor:
    """[tokens, heads, dim] in float64, times the scale [heads] of its head."""
    return stored.double() if scale is None else stored.double() * scale.double()[:, None]


def gathered(stored: Tensor, rows: Tensor) -> Tensor:
    """A copy of the rows [n] of a tensor, of any dtype."""
    return indexable(stored).index_select(0, rows).view(stored.dtype)


def indexable(stored: Tensor) -> Tensor:
    """torch indexes no float8, but its bytes."""
    return stored.view(torch.uint8) if stored.element_size() == 1 else stored


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x [tokens, hidden] over its root mean square, times weight [hidden]."""
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + epsilon).sqrt() * weight.double()


class Scaled(Protocol):
    """A weight in fp8 (e4m3)."""

    @property
    def values(self) -> Tensor:
        """[in, out]."""

    @property
    def scales(self) -> Tensor:
        """[1, out], by which the columns of the values are multiplied."""


def project(x: Tensor, weight: Tensor | Scaled) -> Tensor:
    """x [tokens, in] times weight [in, out]. One in fp8 meets x in fp8: each row at the scale that maps its largest
    magnitude to 448."""
    if isinstance(weight, Tensor):
        return x.double() @ weight.double()
    scales = x.double().abs().amax(1, keepdim=True).clamp(min=1e-12) / 448
    rounded = (x.double() / scales).to(torch.float8_e4m3fn).double() * scales
    return rounded @ (weight.values.double() * weight.scales.double())


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate / (1 + exp(-gate)) * up of [tokens, 2 * width], gate first."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    return gate / (1 + (-gate).exp()) * up


def allowed_logits(logits: Tensor, allowed: Tensor) -> Tensor:
    """logits [batch, vocabulary], minus infinity but for token t with bit t % 32 of word t // 32 of `allowed` set."""
    tokens = torch.arange(logits.shape[1], device=logits.device)
    bits = allowed.long()[:, tokens // 32] >> (tokens % 32) & 1
    return logits.double().where(bits == 1, -torch.inf)
