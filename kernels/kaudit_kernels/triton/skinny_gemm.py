"""x [tokens, IN] times weight [IN, OUT] for few tokens: bound by memory, so the weight is streamed once and no more.

A program takes BLOCK_N columns and all of IN.
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
    out,  # [tokens, OUT]
    tokens,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,  # >= tokens: 16 at least, the rows of a tensor-core tile
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.arange(0, ROWS)
    depths = tl.arange(0, BLOCK_K)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there, inside = rows < tokens, columns < OUT
    x += rows[:, None] * IN + depths[None, :]
    weight += depths.to(tl.int64)[:, None] * OUT + columns[None, :]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in range(0, IN, BLOCK_K):
        deep = depths < IN - start
        left = tl.load(x, mask=there[:, None] & deep[None, :], other=0.0)
        right = tl.load(weight, mask=deep[:, None] & inside[None, :], other=0.0)
        total = tl.dot(left, right, total)
        x += BLOCK_K
        weight += BLOCK_K * OUT
    out += rows[:, None] * OUT + columns[None, :]
    tl.store(out, total.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])
