"""x [tokens, IN] times weight [IN, OUT] for few tokens: bound by memory, so the weight is streamed once and no more.

Program (column tile, split) takes BLOCK_N columns and the split's part of IN. Parts are summed by a second kernel in a
fixed order: an atomic add would give other bits each time.
"""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def skinny_gemm_kernel(
    x,  # [tokens, IN]
    weight,  # [IN, OUT], of the type of x
    out,  # [SPLITS, tokens, OUT], float32 if there are several splits
    tokens,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,  # >= tokens: 16 at least, the rows of a tensor-core tile
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # Whole blocks of IN for each split.
    part: tl.constexpr = (IN + SPLITS * BLOCK_K - 1) // (SPLITS * BLOCK_K) * BLOCK_K
    split = tl.program_id(1)
    rows = tl.arange(0, ROWS)
    depths = split * part + tl.arange(0, BLOCK_K)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there, inside = rows < tokens, columns < OUT
    x += rows[:, None] * IN + depths[None, :]
    weight += depths.to(tl.int64)[:, None] * OUT + columns[None, :]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in range(0, part, BLOCK_K):
        deep = depths < IN - start
        left = tl.load(x, mask=there[:, None] & deep[None, :], other=0.0)
        right = tl.load(weight, mask=deep[:, None] & inside[None, :], other=0.0)
        total = tl.dot(left, right, total)
        x += BLOCK_K
        weight += BLOCK_K * OUT
    out += (split * tokens + rows).to(tl.int64)[:, None] * OUT + columns[None, :]
    tl.store(out, total.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])


@triton.jit
def sum_parts_kernel(parts, out, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """out [count] = the sum of parts [SPLITS, count], first to last."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts + split * count + places, mask=inside, other=0.0)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=inside)
