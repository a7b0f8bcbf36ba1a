"""Grids and tile sizes of the Triton kernels.

Triton is imported at the first launch: a box without it can still decide.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit_kernels.cache import LARGEST, movable
from kaudit_kernels.eager import EPSILON
from kaudit_kernels.inputs import Inputs

NORM_TILE = 4096
"""Elements of a program of narrow rows: 8 KiB in flight for each of the 8 programs of an SM."""
MANY_TOKENS = 8192
"""From here on, four rows a program still leave each of 132 SMs 15 programs."""


@dataclass(frozen=True)
class NormTile:
    """What one program of a norm takes."""

    rows: int
    block: int
    """Elements of a row, rounded up to a power of two."""
    warps: int


@dataclass(frozen=True)
class RopeTile:
    """What one program of rope_kv_write takes."""

    elements: int
    """Of Q, or of K and V together, of one token."""
    warps: int


ROPE_TILE = RopeTile(2048, 4)
"""Two 16-byte loads for each of 128 threads."""


def rms_norm(x: Tensor, weight: Tensor, tile: NormTile | None = None) -> Tensor:
    """As eager.rms_norm, in one pass over memory; `tile` is for trying others than its own."""
    from kaudit_kernels.triton.norm import rms_norm_kernel

    out = torch.empty_like(x)
    tokens, hidden = x.shape
    tile = tile or norm_tile(tokens, hidden)
    rms_norm_kernel[(-(-tokens // tile.rows),)](
        x, weight, out, tokens, EPSILON, HIDDEN=hidden, BLOCK=tile.block, ROWS=tile.rows, num_warps=tile.warps
    )
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, tile: NormTile | None = None) -> Tensor:
    """As eager.add_rms_norm, in one pass over memory."""
    from kaudit_kernels.triton.norm import add_rms_norm_kernel

    both = x.new_empty(2, *x.shape)
    tokens, hidden = x.shape
    tile = tile or norm_tile(tokens, hidden)
    add_rms_norm_kernel[(-(-tokens // tile.rows),)](
        x,
        residual,
        weight,
        both[0],
        both[1],
        tokens,
        EPSILON,
        HIDDEN=hidden,
        BLOCK=tile.block,
        ROWS=tile.rows,
        num_warps=tile.warps,
    )
    return both


def norm_tile(tokens: int, hidden: int) -> NormTile:
    """Narrow rows share a program, so that it has NORM_TILE elements to wait for; but not where programs are few."""
    block = power_of_two(hidden)
    rows = max(1, NORM_TILE // block) if tokens >= MANY_TOKENS else 1
    # 16 elements a lane: two 16-byte loads.
    return NormTile(rows, block, min(max(rows * block // 512, 1), 16))


def rope_kv_write(qkv: Tensor, inputs: Inputs, tile: RopeTile = ROPE_TILE) -> Tensor:
    """As eager.rope_kv_write, in one pass over memory."""
    from kaudit_kernels.triton.rope_kv_write import rope_kv_write_kernel

    problem, cache = inputs.problem, inputs.cache
    q = qkv.new_empty(problem.tokens, problem.q_heads, problem.head_dim)
    pairs, v_block = power_of_two(problem.head_dim // 2), power_of_two(problem.v_head_dim)
    q_block = min(power_of_two(problem.q_heads), max(1, tile.elements // (2 * pairs)))
    # A program of K and V has a tile of each.
    kv_block = min(power_of_two(problem.kv_heads), max(1, tile.elements // 2 // max(2 * pairs, v_block)))
    rope_kv_write_kernel[(problem.tokens, -(-problem.q_heads // q_block) + -(-problem.kv_heads // kv_block))](
        qkv,
        q,
        movable(cache.k),
        movable(cache.v),
        cache.slots,
        inputs.cosines,
        inputs.sines,
        cache.k_scale,
        cache.v_scale,
        Q_HEADS=problem.q_heads,
        KV_HEADS=problem.kv_heads,
        HEAD_DIM=problem.head_dim,
        V_HEAD_DIM=problem.v_head_dim,
        ROPE=problem.rope,
        KV_DTYPE=problem.kv_dtype,
        LARGEST=LARGEST.get(cache.k.dtype, 0.0),
        Q_BLOCK=q_block,
        KV_BLOCK=kv_block,
        PAIRS=pairs,
        V_BLOCK=v_block,
        num_warps=tile.warps,
        # As eager does it: a fused multiply and add rounds once where that rounds twice.
        enable_fp_fusion=False,
    )
    return q


def power_of_two(number: int) -> int:
    """The least power of two that is not less than `number`, which is 1 or more."""
    return 1 << (number - 1).bit_length()
