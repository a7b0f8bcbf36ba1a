"""What the decode kernels share: the queries of a tile, and their running softmax over some keys of a paged cache.

A row is one (query, head of the group) pair. A tile of keys spans pages: each key looks up its own page, one iteration
ahead of its use, so that the loads of K and V need not wait for the page table. Exponentials are of base two.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kaudit_kernels.triton.prefill_tile import capped, seen_by_position, softmax_step


@triton.jit
def load_rows(q, offsets, live, scale, k_scale, kv_head, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of q [BLOCK_M, BLOCK_D], those not live zero, and the scale [BLOCK_M] of their scores.

    A quantised K is multiplied as float16, which holds every value of e4m3, e5m2 and int8, and is one instruction from
    fp8. So q is brought to float16 too: bfloat16 reaches further, so each row is divided by its largest element.
    """
    dims = tl.arange(0, BLOCK_D)
    there = live[:, None] & (dims < HEAD_DIM)[None, :]
    rows = tl.load(q + offsets[:, None] * HEAD_DIM + dims[None, :], mask=there, other=0.0)
    scales = tl.where(live, scale, 0.0)
    if k_scale is not None:
        scales *= tl.load(k_scale + kv_head)
        if rows.dtype == tl.bfloat16:
            wide = rows.to(tl.float32)
            largest = tl.max(tl.abs(wide), axis=1)
            largest = tl.where(largest == 0.0, 1.0, largest)
            scales *= largest
            rows = (wide / largest[:, None]).to(tl.float16)
    return rows, scales


@triton.jit
def over_keys(
    rows, scales, k, v, table, kv_head, begin, end, own, prefix, window, ancestors,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, V_DIM: tl.constexpr, MASK: tl.constexpr, CAP: tl.constexpr,
    PAGE_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Unnormalised output [BLOCK_M, BLOCK_V], maximum in units of log2 and sum [BLOCK_M] over keys [begin, end).

    `table` is the request's row of the page table. What the mask looks at: `own` [BLOCK_M], the key of each row's own
    token; `prefix`, the first key of the request's new tokens; `ancestors` [BLOCK_M], bit j: new token j is seen.
    A row that sees no key has the maximum minus infinity and the sum 0.
    """
    dims = tl.arange(0, BLOCK_D)
    v_dims = tl.arange(0, BLOCK_V)
    lanes = tl.arange(0, BLOCK_N)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
    page = tl.load(table + (begin + lanes) // PAGE_SIZE, mask=begin + lanes < end, other=0)
    for start in range(begin, end, BLOCK_N):
        keys = start + lanes
        stored = (page.to(tl.int64) * PAGE_SIZE + keys % PAGE_SIZE) * KV_HEADS + kv_head
        page = tl.load(table + (keys + BLOCK_N) // PAGE_SIZE, mask=keys + BLOCK_N < end, other=0)
        # What is not seen is not read either: it may be NaN, and NaN times a weight of zero is NaN.
        inside = (keys < end)[:, None]
        k_inside = inside if BLOCK_D == HEAD_DIM else inside & (dims < HEAD_DIM)[None, :]
        v_inside = inside if BLOCK_V == V_DIM else inside & (v_dims < V_DIM)[None, :]
        k_tile = tl.load(k + stored[:, None] * HEAD_DIM + dims[None, :], mask=k_inside, other=0.0)
        v_tile = tl.load(v + stored[:, None] * V_DIM + v_dims[None, :], mask=v_inside, other=0.0)
        scores = tl.dot(rows, tl.trans(k_tile.to(rows.dtype))) * scales[:, None]
        if CAP > 0:
            scores = capped(scores, CAP)
        seen = seen_by_position(keys, own, end, window, MASK)
        if MASK == "tree":
            bit = (ancestors[:, None] >> tl.maximum(keys - prefix, 0)[None, :]) & 1
            seen = seen & ((keys < prefix)[None, :] | (bit != 0))
        scores = tl.where(seen, scores, float("-inf"))
        p, rescale, m, l = softmax_step(scores, m, l, 1.0, True)
        acc = tl.dot(p.to(rows.dtype), v_tile.to(rows.dtype), acc * rescale[:, None])
    return acc, m, l
