"""Grids and tile sizes of the prefill kernels. Triton is imported at the first launch: a box without it can decide."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit_kernels.eager_attention import SOFTCAP
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.problem import Problem
from kaudit_kernels.triton.launch import power_of_two

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Tile:
    """How a prefill kernel cuts its work."""

    block_m: int
    """Rows, each one (query, head of the group) pair."""
    block_n: int
    """Keys of one step."""
    warps: int
    stages: int
    """Blocks of K and V on their way at once."""


# K and V of all stages, and Q where the compiler keeps it in shared memory, fit the 99 KiB of an sm_86 or sm_120.
TILES = {
    64: Tile(128, 64, warps=8, stages=3),
    128: Tile(128, 64, warps=8, stages=3),
    256: Tile(64, 32, warps=4, stages=2),
}
"""Of flash_prefill, by the larger of the padded head dims of K and V."""
WIDE = Tile(128, 64, warps=8, stages=2)
"""In place of the one of 256, where an SM has 128 KiB to spare: 495 TFLOP/s instead of 385 on an H200."""
SPACIOUS = (80, 90, 100, 103)
"""Of data centres: 163 KiB of shared memory a block, or more. Of the others some have 99."""


@dataclass(frozen=True)
class TmaTile:
    """How flash_prefill_tma cuts its work: tiles of 128 rows, by blocks of keys."""

    block_n: int
    stages: int
    """Blocks of K, and of V, on their way or in use at once."""
    turns: bool
    """The two warpgroups issue their products by turns: one multiplies while the other is at its softmax."""


TMA_TILES = {64: TmaTile(128, stages=3, turns=True), 128: TmaTile(128, 2, True), 256: TmaTile(64, 2, True)}
"""Of flash_prefill_tma, by head dim. Beside Q they take up to 224 of the 227 KiB of an SM."""
TMA_ROWS = 128
"""Of a tile: 64 for each of two warpgroups."""
REGISTERS = 168
"""Of a thread at the launch: 65536 over 12 warps. The kernel itself moves them to the warps that multiply."""


def flash_prefill_tma(q: Tensor, inputs: Inputs, tile: TmaTile | None = None) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through; `tile` is for trying others than its own."""
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from kaudit_kernels.triton.flash_prefill_tma import flash_prefill_tma_kernel

    problem, cache = inputs.problem, inputs.cache
    out = torch.empty_like(q)
    tile = tile or TMA_TILES[problem.head_dim]
    tiles = -(-problem.query_rows // TMA_ROWS)
    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16)
    block = [tile.block_n, problem.head_dim]
    flash_prefill_tma_kernel[(min(problem.sm_count, problem.batch * problem.kv_heads * tiles),)](
        q,
        TensorDescriptor.from_tensor(cache.k.flatten(1), block, layout),
        TensorDescriptor.from_tensor(cache.v.flatten(1), block, layout),
        out,
        cache.q_start,
        cache.kv_lens,
        cache.kv_start,
        cache.page_table,
        cache.page_table.shape[1],
        problem.batch,
        tiles,
        softmax_scale(problem),
        problem.window,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        HEAD_DIM=problem.head_dim,
        MASK=problem.mask,
        PAGE_SIZE=problem.page_size,
        BLOCK_N=tile.block_n,
        STAGES=tile.stages,
        TURNS=tile.turns,
        num_warps=4,
        maxnreg=REGISTERS,
    )
    return out


def flash_prefill(q: Tensor, inputs: Inputs, tile: Tile | None = None) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through; `tile` is for trying others than its own."""
    from kaudit_kernels.triton.flash_prefill import flash_prefill_kernel

    problem, cache = inputs.problem, inputs.cache
    out = q.new_empty(problem.tokens, problem.q_heads, problem.v_head_dim)
    dims, v_dims = padded(problem.head_dim), padded(problem.v_head_dim)
    tile = tile or tile_of(problem)
    packed = inputs.masks.packed() if problem.mask in ("custom", "tree") else None
    cap = SOFTCAP * LOG2_E if "softcap" in problem.features else 0.0
    flash_prefill_kernel[(-(-problem.query_rows // tile.block_m), problem.kv_heads, problem.batch)](
        q,
        cache.k,
        cache.v,
        out,
        cache.q_start,
        cache.kv_lens,
        cache.kv_start,
        cache.page_table,
        cache.k_scale,
        cache.v_scale,
        inputs.sinks,
        packed and packed.bits,
        packed and packed.start,
        cache.page_table.shape[1],
        softmax_scale(problem),
        problem.window,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        HEAD_DIM=problem.head_dim,
        V_HEAD_DIM=problem.v_head_dim,
        DIMS=dims,
        V_DIMS=v_dims,
        MASK=problem.mask,
        CAP=cap,
        PAGE_SIZE=problem.page_size,
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


def softmax_scale(problem: Problem) -> float:
    """What takes the product of q and k to units of log2, or to parts of the cap where scores are capped."""
    scale = 1 / math.sqrt(problem.head_dim)
    return scale / SOFTCAP if "softcap" in problem.features else scale * LOG2_E


def tile_of(problem: Problem) -> Tile:
    """For few rows a smaller one: 64 rows are what one warpgroup multiplies at once, 16 what a tensor core does."""
    dims = max(64, padded(problem.head_dim), padded(problem.v_head_dim))
    tile = WIDE if dims == 256 and problem.sm in SPACIOUS else TILES[dims]
    rows = problem.query_rows
    if rows <= 16:
        return Tile(16, tile.block_n, 4, tile.stages)
    if rows <= 64:
        return Tile(64, tile.block_n, 4, tile.stages)
    return tile


def padded(head_dim: int) -> int:
    """The power of two that a head is padded to: a tensor core multiplies no fewer than 16."""
    return max(16, power_of_two(head_dim))
