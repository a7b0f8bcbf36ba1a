"""The reference for attention: any layout, mask, KV dtype and feature, in plain torch, one request at a time."""

import torch
from torch import Tensor

from kaudit_kernels.cache import read
from kaudit_kernels.inputs import Inputs

SOFTCAP = 50.0
"""Scores are bent to the range (-50, 50), as in Gemma 2's attention."""


def attention(q: Tensor, inputs: Inputs) -> Tensor:
    """q [tokens, q_heads, head_dim] over the cache: [tokens, q_heads, v_head_dim]."""
    problem, cache = inputs.problem, inputs.cache
    out = q.new_empty(problem.tokens, problem.q_heads, problem.v_head_dim)
    first = 0
    for request, q_len in enumerate(problem.q_lens):
        if not q_len:
            continue
        rows = cache.rows[request]
        k, v = read(cache.k, rows, cache.k_scale), read(cache.v, rows, cache.v_scale)
        out[first : first + q_len] = attend(
            q[first : first + q_len].float(),
            k,
            v,
            inputs.masks.of(request),
            softcap=SOFTCAP if "softcap" in problem.features else None,
            sinks=inputs.sinks,
        )
        first += q_len
    return out


def attend(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, softcap: float | None = None, sinks: Tensor | None = None
) -> Tensor:
    """One request in float32: q [q_len, q_heads, dim], k [kv_len, kv_heads, dim], v [kv_len, kv_heads, v_dim].

    Scores are scaled by dim ** -0.5, then capped, then masked. A sink [q_heads] is one more logit in the denominator,
    neither scaled nor capped. KV head h serves the query heads h * group to h * group + group - 1.
    """
    grouped = q.view(len(q), k.shape[1], -1, q.shape[-1])
    scores = torch.einsum("qhgd,khd->hgqk", grouped, k) * q.shape[-1] ** -0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        sink = sinks.view(k.shape[1], -1, 1, 1).expand(-1, -1, len(q), 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
    return torch.einsum("hgqk,khd->qhgd", weights, v).flatten(1, 2)
