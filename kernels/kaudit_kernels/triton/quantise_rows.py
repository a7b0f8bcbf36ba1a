"""Rows to fp8, each with a scale of its own: what a projection in fp8 does to its input. The bits of fp8.quantised."""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kaudit_kernels.triton.fp8_bits import fp8_bits


@triton.jit
def quantise_rows_kernel(
    x, values, scales, LARGEST: tl.constexpr, TINY: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """x [rows, WIDTH], values the same as bytes, scales [rows] float32. A program reads its row twice."""
    row = tl.program_id(0).to(tl.int64)
    x += row * WIDTH
    values += row * WIDTH
    most = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.abs(tl.load(x + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)))
    scale = tl.div_rn(tl.maximum(tl.max(most, axis=0), TINY), LARGEST)
    tl.store(scales + row, scale)
    for start in range(0, WIDTH, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        wide = tl.load(x + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
        wide = tl.div_rn(wide, tl.zeros((BLOCK,), tl.float32) + scale)
        wide = tl.clamp(wide, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
        tl.store(values + columns, fp8_bits(wide, False), mask=columns < WIDTH)
