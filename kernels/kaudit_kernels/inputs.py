"""Everything one step reads: weights, activations, cache, angles. Made once, from a seed, before any profile."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit_kernels.cache import TORCH_DTYPE, Cache, make_cache
from kaudit_kernels.masks import Masks, depths
from kaudit_kernels.problem import Problem
from kaudit_kernels.rope import angles

VOCABULARY = 32_768


@dataclass(frozen=True)
class Inputs:
    """What the ops of a step are given besides one another's outputs. Floats are in `problem.dtype` unless said."""

    problem: Problem
    x: Tensor
    """[tokens, hidden], the layer's input and residual."""
    attention_norm: Tensor
    """[hidden]."""
    mlp_norm: Tensor
    """[hidden]."""
    qkv: Tensor
    """[hidden, q_heads * head_dim + kv_heads * head_dim + kv_heads * v_head_dim], Q, K and V side by side."""
    o: Tensor
    """[q_heads * v_head_dim, hidden]."""
    gate_up: Tensor
    """[hidden, 2 * intermediate], gate then up."""
    down: Tensor
    """[intermediate, hidden]."""
    cosines: Tensor
    """[tokens, head_dim / 2] float32; empty without rope."""
    sines: Tensor
    """[tokens, head_dim / 2] float32; empty without rope."""
    cache: Cache
    masks: Masks
    sinks: Tensor | None
    """[q_heads] float32: a logit of each head that takes part in the softmax and carries no value."""
    logits: Tensor
    """[batch, VOCABULARY] float32, fixed: the head of the model is no op of a decoder layer."""
    allowed: Tensor
    """[batch, VOCABULARY / 32] int32: bit j of word i is set if the grammar allows token 32 * i + j."""


def make_inputs(problem: Problem, device: str, seed: int) -> Inputs:
    """Random normal tensors; weights are scaled so that a projection keeps the spread of its input, near one."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = TORCH_DTYPE[problem.dtype]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def projection(rows: int, columns: int) -> Tensor:
        return (normal(rows, columns) / math.sqrt(rows)).to(dtype)

    hidden, kv_width = problem.hidden, problem.kv_heads * (problem.head_dim + problem.v_head_dim)
    cosines, sines = torch.empty(2, 0, device=device)
    if problem.rope != "none":
        cosines, sines = angles(positions(problem).to(device), problem.head_dim, problem.rope_scaling)
    return Inputs(
        problem=problem,
        x=normal(problem.tokens, hidden).to(dtype),
        attention_norm=(1 + 0.1 * normal(hidden)).to(dtype),
        mlp_norm=(1 + 0.1 * normal(hidden)).to(dtype),
        qkv=projection(hidden, hidden + kv_width),
        o=projection(problem.q_heads * problem.v_head_dim, hidden),
        gate_up=projection(hidden, 2 * problem.intermediate),
        down=projection(problem.intermediate, hidden),
        cosines=cosines,
        sines=sines,
        cache=make_cache(problem, device, generator),
        masks=Masks(problem, device, seed),
        sinks=normal(problem.q_heads) if "sinks" in problem.features else None,
        logits=normal(problem.batch, VOCABULARY),
        allowed=torch.randint(
            -(2**31), 2**31, (problem.batch, VOCABULARY // 32), dtype=torch.int32, generator=generator, device=device
        ),
    )


def positions(problem: Problem) -> Tensor:
    """[tokens] int64: where each new token stands. The branches of a speculative tree stand side by side."""
    each = []
    for q_len, kv_len in zip(problem.q_lens, problem.kv_lens, strict=True):
        behind = depths(q_len) if problem.mask == "tree" else torch.arange(q_len)
        each.append(problem.rope_offset + kv_len - q_len + behind)
    return torch.cat(each)
