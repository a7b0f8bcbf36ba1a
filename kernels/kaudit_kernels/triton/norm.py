"""RMSNorm, and residual addition with RMSNorm: each row is held in registers between its two passes.

x, residual, out, total [tokens, HIDDEN], weight [HIDDEN]. A program takes ROWS rows; BLOCK: the power of two >= HIDDEN.
"""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, weight, out, tokens, epsilon, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """out = x / rms(x) * weight."""
    places, columns, inside = _rows(tokens, HIDDEN, BLOCK, ROWS)
    wide = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + places, _normed(wide, weight, columns, epsilon, HIDDEN), mask=inside)


@triton.jit
def add_rms_norm_kernel(
    x, residual, weight, out, total, tokens, epsilon, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """total = x + residual; out = total / rms(total) * weight, of the total as it is stored, rounded."""
    places, columns, inside = _rows(tokens, HIDDEN, BLOCK, ROWS)
    left = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + places, rounded, mask=inside)
    tl.store(out + places, _normed(rounded.to(tl.float32), weight, columns, epsilon, HIDDEN), mask=inside)


@triton.jit
def _rows(tokens, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Where the program's elements lie, their columns, and which of them there are."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    places = rows.to(tl.int64)[:, None] * HIDDEN + columns[None, :]  # 2**31 elements are 262,144 tokens of 8,192
    return places, columns, (rows < tokens)[:, None] & (columns < HIDDEN)[None, :]


@triton.jit
def _normed(wide, weight, columns, epsilon, HIDDEN: tl.constexpr):
    """Rows [ROWS, BLOCK] float32, zero past HIDDEN, over their root mean square, times weight [HIDDEN]; in float32."""
    scale = tl.rsqrt(tl.sum(wide * wide, axis=1) / HIDDEN + epsilon)
    weights = tl.load(weight + columns, mask=columns < HIDDEN, other=0.0).to(tl.float32)
    return wide * scale[:, None] * weights[None, :]
