"""Launches of the projections that eager.project is the reference of: few tokens, and fp8.

Triton is imported at the first launch: a box without it can still decide.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit_kernels.fp8 import FP8, LARGEST, TINY, Fp8Weight
from kaudit_kernels.triton.launch import power_of_two


@dataclass(frozen=True)
class SkinnyTile:
    """How the skinny product cuts its work."""

    block_n: int
    """Columns of a program: each row of the weight gives it 2 * block_n contiguous bytes."""
    block_k: int
    """Rows of the weight at a time."""
    warps: int
    stages: int
    """Blocks of the weight on their way at once."""


def tile_of(width: int) -> SkinnyTile:
    """The tile by which an H200 reads the weights of 4096 inputs the fastest, in TB/s:

    | block_n | to 4096 | to 6144 | to 16,384 |
    | ------- | ------- | ------- | --------- |
    | 32      | 2.55    | 2.57    | 2.89      |
    | 64      | 2.31    | 3.02    | 3.88      |
    | 128     | 2.34    | 2.52    | 3.89      |
    """
    if width >= 16384:
        return SkinnyTile(block_n=128, block_k=64, warps=4, stages=5)
    if width >= 6144:
        return SkinnyTile(block_n=64, block_k=128, warps=4, stages=5)
    return SkinnyTile(block_n=32, block_k=256, warps=4, stages=4)


def skinny_gemm(x: Tensor, weight: Tensor, tile: SkinnyTile | None = None) -> Tensor:
    """As eager.project, for the few tokens that the catalogue lets through; `tile` is for trying others."""
    from kaudit_kernels.triton.skinny_gemm import skinny_gemm_kernel

    (tokens, depth), width = x.shape, weight.shape[1]
    tile = tile or tile_of(width)
    rows = max(16, power_of_two(tokens))
    out = x.new_empty(tokens, width)
    skinny_gemm_kernel[(-(-width // tile.block_n),)](
        x,
        weight,
        out,
        tokens,
        IN=depth,
        OUT=width,
        ROWS=rows,
        BLOCK_K=tile.block_k,
        BLOCK_N=tile.block_n,
        num_warps=tile.warps,
        num_stages=tile.stages - (rows > 32),  # with one more, 64 rows need 144 KiB of shared memory: some SMs have 99
    )
    return out


def scaled_mm(x: Tensor, weight: Fp8Weight) -> Tensor:
    """As eager.project of a weight in fp8, the product on fp8 tensor cores."""
    from kaudit_kernels.triton.quantise_rows import quantise_rows_kernel

    tokens, depth = x.shape
    values = x.new_empty(tokens, depth, dtype=torch.uint8)
    scales = x.new_empty(tokens, 1, dtype=torch.float32)
    quantise_rows_kernel[(tokens,)](
        x, values, scales, LARGEST=LARGEST, TINY=TINY, WIDTH=depth, BLOCK=min(power_of_two(depth), 4096), num_warps=8
    )
    return torch._scaled_mm(values.view(FP8), weight.values, scale_a=scales, scale_b=weight.scales, out_dtype=x.dtype)
