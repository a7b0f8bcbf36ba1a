"""Attention of one query a request over a paged cache, its keys split over several programs, and the parts' merge.

One decode query has no tiles of queries to fill a GPU with, so the keys are shared out. Each part leaves its running
maximum, sum and unnormalised output in float32; the merge weighs them by their maxima, so no part can overflow another.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


# Lengths that vary from batch to batch must not compile anew when one happens to be 1 or a multiple of 16.
@triton.jit(do_not_specialize=["pages", "window"])
def split_kv_decode_kernel(
    q,  # [batch, KV_HEADS * GROUP, HEAD_DIM]
    k,  # [rows, KV_HEADS, HEAD_DIM]
    v,  # [rows, KV_HEADS, HEAD_DIM]
    part_acc,  # [batch, KV_HEADS * GROUP, splits, HEAD_DIM] float32
    part_m,  # [batch, KV_HEADS * GROUP, splits] float32, in units of log2
    part_l,  # [batch, KV_HEADS * GROUP, splits] float32
    kv_lens,  # [batch] int32
    page_table,  # [batch, pages] int32
    pages,
    scale,  # of the scores, times log2(e)
    window,  # keys the query sees, read if WINDOWED
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WINDOWED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,  # divides PAGE_SIZE: a tile of keys lies in one page, found by one look into the table
    ROWS: tl.constexpr,  # at least GROUP: rows of the product, the heads of the group and idle ones
):
    split, splits = tl.program_id(0), tl.num_programs(0)
    kv_head = tl.program_id(1)
    request = tl.program_id(2)
    kv_len = tl.load(kv_lens + request)
    low = 0
    if WINDOWED:
        low = tl.maximum(kv_len - window, 0)
    # Parts are whole tiles, so that every tile starts where a page may. Short requests leave their last parts empty.
    origin = low // BLOCK_N * BLOCK_N
    length = tl.cdiv(tl.cdiv(kv_len - origin, splits), BLOCK_N) * BLOCK_N
    begin = origin + split * length
    end = tl.minimum(begin + length, kv_len)

    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, HEAD_DIM)
    live = rows < GROUP
    heads = request.to(tl.int64) * (KV_HEADS * GROUP) + kv_head * GROUP + rows
    q_tile = tl.load(q + heads[:, None] * HEAD_DIM + dims[None, :], mask=live[:, None], other=0.0)
    m = tl.full((ROWS,), float("-inf"), tl.float32)
    l = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    for start in range(begin, end, BLOCK_N):
        page = tl.load(page_table + request * pages + start // PAGE_SIZE).to(tl.int64)
        keys = start + tl.arange(0, BLOCK_N)
        seen = (keys >= low) & (keys < kv_len)
        # What is not seen is not read either: it may be NaN, and NaN times a weight of zero is NaN.
        stored = page * PAGE_SIZE + start % PAGE_SIZE + tl.arange(0, BLOCK_N)
        offsets = (stored * KV_HEADS + kv_head)[:, None] * HEAD_DIM + dims[None, :]
        k_tile = tl.load(k + offsets, mask=seen[:, None], other=0.0)
        v_tile = tl.load(v + offsets, mask=seen[:, None], other=0.0)
        scores = tl.where(seen[None, :], tl.dot(q_tile, tl.trans(k_tile)) * scale, float("-inf"))
        # Every tile of a part holds a key that is seen, so m_new is finite.
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        rescale = tl.exp2(m - m_new)
        l = l * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * rescale[:, None])
        m = m_new
    part = heads * splits + split
    tl.store(part_m + part, m, mask=live)
    tl.store(part_l + part, l, mask=live)
    tl.store(part_acc + part[:, None] * HEAD_DIM + dims[None, :], acc, mask=live[:, None])


@triton.jit(do_not_specialize=["splits"])
def split_kv_merge_kernel(
    part_acc,  # [heads, splits, HEAD_DIM] float32, where heads counts those of the whole batch
    part_m,  # [heads, splits] float32
    part_l,  # [heads, splits] float32
    out,  # [heads, HEAD_DIM]
    splits,
    HEAD_DIM: tl.constexpr,
    SPLITS: tl.constexpr,  # the power of two >= splits
):
    head = tl.program_id(0).to(tl.int64)
    parts = tl.arange(0, SPLITS)
    dims = tl.arange(0, HEAD_DIM)
    there = parts < splits
    m = tl.load(part_m + head * splits + parts, mask=there, other=float("-inf"))
    l = tl.load(part_l + head * splits + parts, mask=there, other=0.0)
    offsets = (head * splits + parts)[:, None] * HEAD_DIM + dims[None, :]
    acc = tl.load(part_acc + offsets, mask=there[:, None], other=0.0)
    # The first part of a request is never empty, so the maximum is finite; an empty part weighs exp2(-inf) = 0.
    weight = tl.exp2(m - tl.max(m, axis=0))
    tl.store(out + head * HEAD_DIM + dims, tl.sum(acc * weight[:, None], axis=0) / tl.sum(l * weight, axis=0))
