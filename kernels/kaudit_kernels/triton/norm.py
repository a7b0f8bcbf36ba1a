"""RMSNorm, and residual addition with RMSNorm: one row a program, held in registers between its two passes."""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, epsilon, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    """out = x / rms(x) * weight; x and out [tokens, HIDDEN], weight [HIDDEN], BLOCK the power of two >= HIDDEN."""
    row = tl.program_id(0).to(tl.int64) * HIDDEN  # int64: 2**31 elements are 262,144 tokens of 8,192
    columns = tl.arange(0, BLOCK)
    inside = columns < HIDDEN
    wide = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / HIDDEN + epsilon)
    weights = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + columns, wide * scale * weights, mask=inside)


@triton.jit
def add_rms_norm_kernel(x, residual, weight, out, total, epsilon, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    """total = x + residual; out = total / rms(total) * weight, of the total as it is stored, rounded."""
    row = tl.program_id(0).to(tl.int64) * HIDDEN
    columns = tl.arange(0, BLOCK)
    inside = columns < HIDDEN
    left = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + row + columns, mask=inside, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + row + columns, rounded, mask=inside)
    wide = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / HIDDEN + epsilon)
    weights = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + columns, wide * scale * weights, mask=inside)
