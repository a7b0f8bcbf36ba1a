"""Attention through torch's fused CPU kernel (FlashAttention for CPU), one request a call."""

import torch
from torch import Tensor

from kaudit_kernels.inputs import Inputs


def fused_sdpa(q: Tensor, inputs: Inputs) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through: rows of a request follow one another."""
    problem, cache = inputs.problem, inputs.cache
    out = torch.empty_like(q)
    starts = cache.kv_start.tolist()
    first = 0
    for request, (q_len, kv_len) in enumerate(zip(problem.q_lens, problem.kv_lens, strict=True)):
        if not q_len:
            continue
        rows = slice(starts[request], starts[request] + kv_len)
        # torch aligns is_causal top-left, which is ours only where queries and keys are equally many.
        square = problem.mask == "causal" and q_len == kv_len
        # heads first, [1, heads, tokens, dim]: strided views, nothing is copied
        attended = torch.nn.functional.scaled_dot_product_attention(
            q[None, first : first + q_len].transpose(1, 2),
            cache.k[None, rows].transpose(1, 2),
            cache.v[None, rows].transpose(1, 2),
            attn_mask=None if square else inputs.masks.of(request),
            is_causal=square,
            enable_gqa=problem.group > 1,
        )
        out[first : first + q_len] = attended[0].transpose(0, 1)
        first += q_len
    return out
