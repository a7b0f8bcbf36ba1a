"""The reference for every op but attention: what each kernel of the catalogue has to compute, in plain torch.

Sums and products that make up one output element are taken in float32 and rounded once, to the dtype of the step.
"""

import torch
from torch import Tensor

from kaudit_kernels.cache import write
from kaudit_kernels.fp8 import Fp8Weight, quantised
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.rope import rotate

EPSILON = 1e-6
"""Added to the mean square, as in Llama."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x [tokens, hidden] over its root mean square, times weight [hidden]."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON) * weight.float()
    return normed.to(x.dtype).contiguous()  # x may be a view with its rows anywhere


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """[2, tokens, hidden]: the norm of x + residual, and that sum, the new residual. The norm reads the rounded sum."""
    total = x + residual
    return torch.stack((rms_norm(total, weight), total))


def project(x: Tensor, weight: Tensor | Fp8Weight) -> Tensor:
    """x [tokens, in] times weight [in, out]: on a GPU one product of cuBLAS.

    A weight in fp8 meets x rounded to fp8, each row with its scale; the product is taken in float32, dequantised.
    """
    if isinstance(weight, Tensor):
        return x @ weight
    values, scales = quantised(x, dim=1)
    return (values.float() * scales @ weight.dequantised()).to(x.dtype)


def rope_kv_write(qkv: Tensor, inputs: Inputs) -> Tensor:
    """Rotate Q and K, write K and V to the cache; the rotated Q [tokens, q_heads, head_dim]."""
    problem, cache = inputs.problem, inputs.cache
    k_width, v_width = problem.kv_heads * problem.head_dim, problem.kv_heads * problem.v_head_dim
    q, k, v = torch.split(qkv, [problem.hidden, k_width, v_width], dim=-1)
    q = q.reshape(-1, problem.q_heads, problem.head_dim)
    k = k.reshape(-1, problem.kv_heads, problem.head_dim)
    v = v.reshape(-1, problem.kv_heads, problem.v_head_dim)
    if problem.rope != "none":
        interleaved = problem.rope == "interleaved"
        q = rotate(q, inputs.cosines, inputs.sines, interleaved).to(qkv.dtype)
        k = rotate(k, inputs.cosines, inputs.sines, interleaved)
    write(cache.k, cache.slots, k, cache.k_scale)
    write(cache.v, cache.slots, v, cache.v_scale)
    return q.contiguous()


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of gate_up [tokens, 2 * intermediate]: [tokens, intermediate]."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


def logits_mask(logits: Tensor, allowed: Tensor) -> Tensor:
    """logits [batch, vocabulary], minus infinity where the bit of `allowed` is not set.

    allowed [batch, ceil(vocabulary / 32)] int32: the last word may have bits of no token.
    """
    bits = allowed[:, :, None] >> torch.arange(32, dtype=torch.int32, device=allowed.device) & 1
    return logits.masked_fill(bits.flatten(1)[:, : logits.shape[1]] == 0, -torch.inf)
