"""Attention of many queries, FlashAttention-2 style: the scores of a tile live in registers, with a running softmax.

The kernel that takes everything: any layout, mask, KV dtype and feature. Only blocks that a mask or a length cuts
through are masked. Heads that are no power of two are padded with zeros, in registers and shared memory only.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kaudit_kernels.triton.prefill_tile import capped, key_ranges, seen_by_position, softmax_step


# Lengths that vary from batch to batch must not compile anew when one happens to be 1 or a multiple of 16.
@triton.jit(do_not_specialize=["pages", "window"])
def flash_prefill_kernel(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    k,  # [rows, KV_HEADS, HEAD_DIM]
    v,  # [rows, KV_HEADS, V_HEAD_DIM]
    out,  # [tokens, KV_HEADS * GROUP, V_HEAD_DIM]
    q_start,  # [batch + 1] int32
    kv_lens,  # [batch] int32
    kv_start,  # [batch] int64, zeros if PAGE_SIZE
    page_table,  # [batch, pages] int32, read if PAGE_SIZE
    k_scale,  # [KV_HEADS] float32, or None
    v_scale,  # [KV_HEADS] float32, or None
    sinks,  # [KV_HEADS * GROUP] float32, or None
    bits,  # uint8, the packed masks of all requests (masks.Packed), or None unless MASK is custom or tree
    bits_start,  # [batch] int64, or None
    pages,
    scale,  # of the scores: to units of log2, or to parts of CAP
    window,  # keys a query sees, read if MASK is window
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,  # the power of two >= HEAD_DIM
    V_DIMS: tl.constexpr,  # the power of two >= V_HEAD_DIM
    MASK: tl.constexpr,
    CAP: tl.constexpr,  # of the scores, in units of log2; 0: none
    PAGE_SIZE: tl.constexpr,  # 0: a request's rows follow one another
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # Later tiles see more keys: they start first, so that short ones fill the gaps at the end of the grid.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    request = tl.program_id(2)
    first_token = tl.load(q_start + request)
    q_len = tl.load(q_start + request + 1) - first_token
    kv_len = tl.load(kv_lens + request)
    if tile * BLOCK_M >= q_len * GROUP:
        return

    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    queries = rows // GROUP
    live = queries < q_len
    heads = kv_head * GROUP + rows % GROUP
    q_rows = (first_token + queries).to(tl.int64) * (KV_HEADS * GROUP) + heads
    q_tile = _load(q, q_rows, live, HEAD_DIM, DIMS, True)
    if k_scale is not None:
        scale *= tl.load(k_scale + kv_head)

    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, V_DIMS), tl.float32)
    if sinks is not None:
        # A sink is a key that every query sees, of weight exp2(0) to begin with, and of no value.
        m = tl.load(sinks + heads) * 1.4426950408889634  # log2(e)
        l += 1.0

    table = page_table + request.to(tl.int64) * pages
    base = tl.load(kv_start + request)
    low, low_full, high_full, high = key_ranges(tile, q_len, kv_len, window, GROUP, MASK, BLOCK_M, BLOCK_N)
    if MASK == "custom" or MASK == "tree":
        bits += tl.load(bits_start + request)
    if MASK == "window":
        acc, m, l = _over_keys(
            acc, m, l, q_tile, k, v, bits, table, base, kv_head, queries, q_len, kv_len, low, low_full, scale, window,
            KV_HEADS, HEAD_DIM, V_HEAD_DIM, DIMS, V_DIMS, MASK, CAP, PAGE_SIZE, BLOCK_N, True,
        )  # fmt: skip
    acc, m, l = _over_keys(
        acc, m, l, q_tile, k, v, bits, table, base, kv_head, queries, q_len, kv_len, low_full, high_full, scale, window,
        KV_HEADS, HEAD_DIM, V_HEAD_DIM, DIMS, V_DIMS, MASK, CAP, PAGE_SIZE, BLOCK_N, False,
    )  # fmt: skip
    acc, m, l = _over_keys(
        acc, m, l, q_tile, k, v, bits, table, base, kv_head, queries, q_len, kv_len, high_full, high, scale, window,
        KV_HEADS, HEAD_DIM, V_HEAD_DIM, DIMS, V_DIMS, MASK, CAP, PAGE_SIZE, BLOCK_N, True,
    )  # fmt: skip

    # Rows past the last query may divide zero by zero; they are not stored.
    acc = acc / l[:, None]
    if v_scale is not None:
        acc *= tl.load(v_scale + kv_head)
    dims = tl.arange(0, V_DIMS)
    stored = live[:, None] & (dims < V_HEAD_DIM)[None, :]
    tl.store(out + q_rows[:, None] * V_HEAD_DIM + dims[None, :], acc, mask=stored)


@triton.jit
def _over_keys(
    acc, m, l, q_tile, k, v, bits, table, base, kv_head, queries, q_len, kv_len, low, high, scale, window,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, V_HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, V_DIMS: tl.constexpr,
    MASK: tl.constexpr, CAP: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take keys [low, high) into the running softmax, BLOCK_N at a time; without MASKED every row sees all of them."""
    for start in range(low, high, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        stored = keys < kv_len
        if PAGE_SIZE:
            page = tl.load(table + keys // PAGE_SIZE, mask=stored, other=0).to(tl.int64)
            rows = page * PAGE_SIZE + keys % PAGE_SIZE
        else:
            rows = base + keys
        rows = rows * KV_HEADS + kv_head
        k_tile = _load(k, rows, stored, HEAD_DIM, DIMS, MASKED).to(q_tile.dtype)
        scores = tl.dot(q_tile, tl.trans(k_tile))
        if CAP != 0:
            scores = capped(scores * scale, CAP)
        if MASKED:
            seen = seen_by_position(keys, kv_len - q_len + queries, kv_len, window, MASK)
            if MASK == "custom" or MASK == "tree":
                seen &= _seen_by_bits(bits, queries, keys, q_len, kv_len, MASK)
            scores = tl.where(seen, scores, float("-inf"))
        p, rescale, m, l = softmax_step(scores, m, l, scale if CAP == 0 else 1.0, MASKED)
        # Rows past the end may hold NaN, and NaN times a weight of zero is NaN: _load has put zeros there.
        v_tile = _load(v, rows, stored, V_HEAD_DIM, V_DIMS, MASKED).to(q_tile.dtype)
        acc = tl.dot(p.to(q_tile.dtype), v_tile, acc * rescale[:, None])
    return acc, m, l


@triton.jit
def _load(x, rows, present, DIM: tl.constexpr, DIMS: tl.constexpr, MASKED: tl.constexpr):
    """[rows, DIMS] of x [.., DIM]: zeros past DIM and, if MASKED, in the rows that are not present."""
    dims = tl.arange(0, DIMS)
    pointers = x + rows[:, None] * DIM + dims[None, :]
    if DIM < DIMS:
        inside = (dims < DIM)[None, :]
        if MASKED:
            inside = inside & present[:, None]
        loaded = tl.load(pointers, mask=inside, other=0.0)
    elif MASKED:
        loaded = tl.load(pointers, mask=present[:, None], other=0.0)
    else:
        loaded = tl.load(pointers)
    return loaded


@triton.jit
def _seen_by_bits(bits, queries, keys, q_len, kv_len, MASK: tl.constexpr):
    """[BLOCK_M, BLOCK_N] of a request's packed mask. A tree's has bits for the new tokens alone: all see the prefix."""
    if MASK == "tree":
        columns, width = keys - (kv_len - q_len), q_len
    else:
        columns, width = keys, kv_len
    row = queries.to(tl.int64) * tl.cdiv(width, 8)
    told = (queries < q_len)[:, None] & ((columns >= 0) & (columns < width))[None, :]
    octets = tl.load(bits + row[:, None] + (columns >> 3)[None, :], mask=told, other=255)
    return (octets >> (columns & 7).to(tl.uint8)[None, :]) & 1 != 0
