"""Grids and tile sizes of the Triton kernels.

Triton is imported at the first launch: a box without it can still decide.
"""

import math

import torch
from torch import Tensor

from kaudit_kernels.eager import EPSILON
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.problem import Problem

MIN_SPLIT = 256
"""Keys below which a part of a split does too little to pay for its share of the merge."""
MAX_SPLITS = 64
"""The merge holds all parts of a head in registers: 64 * 128 float32 over 128 threads are 64 registers a thread."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """As eager.rms_norm, in one pass over memory."""
    from kaudit_kernels.triton.norm import rms_norm_kernel

    out = torch.empty_like(x)
    tokens, hidden = x.shape
    block = _power_of_two(hidden)
    rms_norm_kernel[(tokens,)](x, weight, out, EPSILON, HIDDEN=hidden, BLOCK=block, num_warps=_warps_of_row(block))
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """As eager.add_rms_norm, in one pass over memory."""
    from kaudit_kernels.triton.norm import add_rms_norm_kernel

    both = x.new_empty(2, *x.shape)
    tokens, hidden = x.shape
    block = _power_of_two(hidden)
    add_rms_norm_kernel[(tokens,)](
        x, residual, weight, both[0], both[1], EPSILON, HIDDEN=hidden, BLOCK=block, num_warps=_warps_of_row(block)
    )
    return both


def flash_prefill(q: Tensor, inputs: Inputs) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through."""
    from kaudit_kernels.triton.flash_prefill import flash_prefill_kernel

    problem, cache = inputs.problem, inputs.cache
    out = torch.empty_like(q)
    rows = max(problem.q_lens) * problem.group
    # 64 rows are what one warpgroup multiplies at once on Hopper (wgmma m64), 16 the least that a tensor core takes.
    block_m = 16 if rows <= 16 else 64 if rows <= 64 else 128
    flash_prefill_kernel[(-(-rows // block_m), problem.kv_heads, problem.batch)](
        q,
        cache.k,
        cache.v,
        out,
        cache.q_start,
        cache.kv_lens,
        cache.kv_start,
        cache.page_table,
        cache.page_table.shape[1],
        _softmax_scale(problem),
        problem.window,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        HEAD_DIM=problem.head_dim,
        CAUSAL=problem.mask != "none",
        WINDOWED=problem.mask == "window",
        PAGE_SIZE=problem.page_size,
        BLOCK_M=block_m,
        BLOCK_N=64,
        num_warps=8 if block_m == 128 else 4,
        # K and V of three blocks are 96 KiB at head dim 128: the most that fits the 99 KiB of an sm_86 or sm_120.
        num_stages=3,
    )
    return out


def split_kv_decode(q: Tensor, inputs: Inputs) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through: one query a request, paged."""
    from kaudit_kernels.triton.split_kv_decode import split_kv_decode_kernel, split_kv_merge_kernel

    problem, cache = inputs.problem, inputs.cache
    out = torch.empty_like(q)
    splits = split_count(problem)
    heads = problem.batch * problem.q_heads
    part_acc = torch.empty(heads, splits, problem.head_dim, dtype=torch.float32, device=q.device)
    part_m, part_l = torch.empty(2, heads, splits, dtype=torch.float32, device=q.device)
    split_kv_decode_kernel[(splits, problem.kv_heads, problem.batch)](
        q,
        cache.k,
        cache.v,
        part_acc,
        part_m,
        part_l,
        cache.kv_lens,
        cache.page_table,
        cache.page_table.shape[1],
        _softmax_scale(problem),
        problem.window,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        HEAD_DIM=problem.head_dim,
        WINDOWED=problem.mask == "window",
        PAGE_SIZE=problem.page_size,
        BLOCK_N=math.gcd(problem.page_size, 64),
        ROWS=16,
        num_warps=4,
        num_stages=5,  # the pipeline runs two ahead for the page table, and two for the K and V that it points to
    )
    split_kv_merge_kernel[(heads,)](
        part_acc, part_m, part_l, out, splits, HEAD_DIM=problem.head_dim, SPLITS=_power_of_two(splits), num_warps=4
    )
    return out


def split_count(problem: Problem) -> int:
    """Parts that the keys of a request are split into: two thread blocks for each SM, each with enough to do."""
    filling = -(-2 * problem.sm_count // problem.tiles)
    return max(1, min(filling, problem.visible_keys // MIN_SPLIT, MAX_SPLITS))


def _softmax_scale(problem: Problem) -> float:
    """The scale of the scores for a softmax in powers of two."""
    return math.log2(math.e) / math.sqrt(problem.head_dim)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _warps_of_row(block: int) -> int:
    """A warp for each 512 elements, which is 16 a lane, between 1 and 16 warps."""
    return min(max(block // 512, 1), 16)
