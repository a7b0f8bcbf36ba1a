"""Attention of many queries, FlashAttention-2 style: the scores of a tile live in registers, with a running softmax.

A tile is BLOCK_M rows; a row is one (query, head of the group) pair: heads that share a KV head share its loads, and
any group size fills the tile. Exponentials are of base two, which is the one the hardware has (ex2); log2(e) is in
the softmax scale. Only blocks that a mask or a length cuts through are masked.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


# Lengths that vary from batch to batch must not compile anew when one happens to be 1 or a multiple of 16.
@triton.jit(do_not_specialize=["pages", "window"])
def flash_prefill_kernel(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    k,  # [rows, KV_HEADS, HEAD_DIM]
    v,  # [rows, KV_HEADS, HEAD_DIM]
    out,  # as q
    q_start,  # [batch + 1] int32
    kv_lens,  # [batch] int32
    kv_start,  # [batch] int64, zeros if PAGE_SIZE
    page_table,  # [batch, pages] int32, read if PAGE_SIZE
    pages,
    scale,  # of the scores, times log2(e)
    window,  # keys a query sees, read if WINDOWED
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,  # only with CAUSAL
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
    own = kv_len - q_len + queries  # the key of the query itself: bottom-right alignment
    heads = kv_head * GROUP + rows % GROUP
    dims = tl.arange(0, HEAD_DIM)
    token = (first_token + queries).to(tl.int64)
    q_offsets = (token * (KV_HEADS * GROUP) + heads)[:, None] * HEAD_DIM + dims[None, :]
    q_tile = tl.load(q + q_offsets, mask=live[:, None], other=0.0)

    # Keys [low, high) are seen by some row of the tile, keys [low_full, high_full) by every row; both in whole blocks.
    first_own = kv_len - q_len + tile * BLOCK_M // GROUP
    last_row = tl.minimum(tile * BLOCK_M + BLOCK_M, q_len * GROUP) - 1
    last_own = kv_len - q_len + last_row // GROUP
    low, low_full, high, high_full = 0, 0, kv_len, kv_len
    if CAUSAL:
        high, high_full = last_own + 1, first_own + 1
    if WINDOWED:
        low = tl.maximum(first_own - window + 1, 0) // BLOCK_N * BLOCK_N
        low_full = tl.cdiv(tl.maximum(last_own - window + 1, 0), BLOCK_N) * BLOCK_N
    high_full = tl.maximum(high_full // BLOCK_N * BLOCK_N, low_full)

    table = page_table + request * pages
    base = tl.load(kv_start + request)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    if WINDOWED:
        acc, m, l = _over_keys(
            acc, m, l, q_tile, k, v, table, base, kv_head, own, low, low_full, kv_len, window, scale,
            KV_HEADS, HEAD_DIM, CAUSAL, WINDOWED, PAGE_SIZE, BLOCK_N, True,
        )  # fmt: skip
    acc, m, l = _over_keys(
        acc, m, l, q_tile, k, v, table, base, kv_head, own, low_full, high_full, kv_len, window, scale,
        KV_HEADS, HEAD_DIM, CAUSAL, WINDOWED, PAGE_SIZE, BLOCK_N, False,
    )  # fmt: skip
    acc, m, l = _over_keys(
        acc, m, l, q_tile, k, v, table, base, kv_head, own, high_full, high, kv_len, window, scale,
        KV_HEADS, HEAD_DIM, CAUSAL, WINDOWED, PAGE_SIZE, BLOCK_N, True,
    )  # fmt: skip
    # Rows past the last query may divide zero by zero; they are not stored.
    tl.store(out + q_offsets, acc / l[:, None], mask=live[:, None])


@triton.jit
def _over_keys(
    acc, m, l, q_tile, k, v, table, base, kv_head, own, low, high, kv_len, window, scale,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take keys [low, high) into the running softmax, BLOCK_N at a time; without MASKED every row sees all of them."""
    dims = tl.arange(0, HEAD_DIM)
    for start in range(low, high, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        stored = keys < kv_len
        if PAGE_SIZE:
            page = tl.load(table + keys // PAGE_SIZE, mask=stored, other=0).to(tl.int64)
            rows = page * PAGE_SIZE + keys % PAGE_SIZE
        else:
            rows = base + keys
        offsets = (rows * KV_HEADS + kv_head)[:, None] * HEAD_DIM + dims[None, :]
        k_tile = tl.load(k + offsets, mask=stored[:, None], other=0.0) if MASKED else tl.load(k + offsets)
        scores = tl.dot(q_tile, tl.trans(k_tile)) * scale
        if MASKED:
            seen = stored[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= own[:, None])
            if WINDOWED:
                seen = seen & (keys[None, :] > own[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        # A row that has seen no key yet keeps m at minus infinity; taken from itself that would be NaN.
        base_two = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(scores - base_two[:, None])
        rescale = tl.exp2(m - base_two)
        l = l * rescale + tl.sum(p, axis=1)
        # Rows past the end may hold NaN, and NaN times a weight of zero is NaN.
        v_tile = tl.load(v + offsets, mask=stored[:, None], other=0.0) if MASKED else tl.load(v + offsets)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * rescale[:, None])
        m = m_new
    return acc, m, l
