"""Everything one step reads: weights, activations, cache, angles. Made once, from a seed, before any profile."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit_kernels.cache import TORCH_DTYPE, Cache, make_cache
from kaudit_kernels.fp8 import Fp8Weight, fp8_weight
from kaudit_kernels.masks import Masks, depths
from kaudit_kernels.problem import Problem
from kaudit_kernels.rope import angles

LOGITS_SPREAD = 3.0
"""Standard deviation of the logits: nine tenths of the probability lie with some hundred tokens, as in a model's."""


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
    qkv: Tensor | Fp8Weight
    """[hidden, qkv_width], Q, K and V side by side."""
    o: Tensor | Fp8Weight
    """[attention_width, hidden]."""
    gate_up: Tensor | Fp8Weight
    """[hidden, gate_up_width], gate then up."""
    down: Tensor | Fp8Weight
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
    """[batch, vocabulary] float32, fixed: the head of the model is no op of a decoder layer."""
    allowed: Tensor
    """[batch, ceil(vocabulary / 32)] int32: bit j of word i is set if the grammar allows token 32 * i + j."""
    draws: Tensor
    """[batch] float32 of [0, 1): the number by which a request's token is drawn: an input, so that a step repeats."""


def make_inputs(problem: Problem, device: str, seed: int) -> Inputs:
    """Random normal tensors; weights are scaled so that a projection keeps the spread of its input, near one."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = TORCH_DTYPE[problem.dtype]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def given(rows: int, columns: int, dtype: torch.dtype, spread: float = 1.0) -> Tensor:
        """[rows, columns] as a caller may have them: a view of other memory, where the features say so."""

        def drawn(*shape: int) -> Tensor:
            return (spread * normal(*shape)).to(dtype)

        if "transposed" in problem.features:
            return drawn(columns, rows).T
        if "sliced" in problem.features:
            return drawn(rows, 2 * columns)[:, :columns]
        if "broadcast" in problem.features:
            return drawn(1, columns).expand(rows, columns)
        return drawn(rows, columns)

    def projection(rows: int, columns: int) -> Tensor | Fp8Weight:
        weight = normal(rows, columns) / math.sqrt(rows)
        return fp8_weight(weight) if problem.weight_dtype == "fp8_e4m3" else weight.to(dtype)

    hidden = problem.hidden
    cosines, sines = torch.empty(2, 0, device=device)
    if problem.rope != "none":
        cosines, sines = angles(positions(problem).to(device), problem.head_dim, problem.rope_scaling)
    return Inputs(
        problem=problem,
        x=given(problem.tokens, hidden, dtype),
        attention_norm=(1 + 0.1 * normal(hidden)).to(dtype),
        mlp_norm=(1 + 0.1 * normal(hidden)).to(dtype),
        qkv=projection(hidden, problem.qkv_width),
        o=projection(problem.attention_width, hidden),
        gate_up=projection(hidden, problem.gate_up_width),
        down=projection(problem.intermediate, hidden),
        cosines=cosines,
        sines=sines,
        cache=make_cache(problem, device, generator),
        masks=Masks(problem, device, seed),
        sinks=normal(problem.q_heads) if "sinks" in problem.features else None,
        logits=given(problem.batch, problem.vocabulary, torch.float32, LOGITS_SPREAD),
        allowed=torch.randint(
            -(2**31),
            2**31,
            (problem.batch, -(-problem.vocabulary // 32)),
            dtype=torch.int32,
            generator=generator,
            device=device,
        ),
        draws=torch.rand(problem.batch, generator=generator, device=device),
    )


def positions(problem: Problem) -> Tensor:
    """[tokens] int64: where each new token stands. The branches of a speculative tree stand side by side."""
    each = []
    for q_len, kv_len in zip(problem.q_lens, problem.kv_lens, strict=True):
        behind = depths(q_len) if problem.mask == "tree" else torch.arange(q_len)
        each.append(problem.rope_offset + kv_len - q_len + behind)
    return torch.cat(each)
