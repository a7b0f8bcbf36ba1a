"""Attention of all requests' queries over the prefix that they share: its K and V are read once, not once a request.

The queries of all requests are the rows of one product. The rest of each request's keys is split_kv_decode's, and so is
the merge.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kaudit_kernels.triton.decode_tile import load_rows, over_keys


# Numbers that vary from batch to batch must not compile anew when one happens to be 1 or a multiple of 16.
@triton.jit(do_not_specialize=["tokens", "shared", "chunk"])
def cascade_prefix_kernel(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    k,  # [rows, KV_HEADS, HEAD_DIM]
    v,  # [rows, KV_HEADS, V_DIM]
    k_scale,  # [KV_HEADS] float32, or None
    v_scale,  # [KV_HEADS] float32, or None
    part_acc,  # [parts, tokens, KV_HEADS * GROUP, V_DIM] float32
    part_m,  # [parts, tokens, KV_HEADS * GROUP] float32, in units of log2
    part_l,  # [parts, tokens, KV_HEADS * GROUP] float32
    page_table,  # [pages] int32 of any request: the first pages are everybody's
    tokens,
    scale,  # takes the product of q and k to units of log2; with CAP to parts of it
    shared,  # keys of the prefix, all of which every query sees
    chunk,  # keys of a part
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_DIM: tl.constexpr,
    CAP: tl.constexpr,  # in units of log2; 0 for none
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # the power of two >= HEAD_DIM
    BLOCK_V: tl.constexpr,  # the power of two >= V_DIM
):
    # Tiles of the same keys run side by side, and read them from the L2.
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    begin = part * chunk
    end = tl.minimum(begin + chunk, shared)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    queries = rows // GROUP
    live = queries < tokens
    q_rows = queries.to(tl.int64) * (KV_HEADS * GROUP) + kv_head * GROUP + rows % GROUP
    q_tile, scales = load_rows(q, q_rows, live, scale, k_scale, kv_head, HEAD_DIM, BLOCK_D)
    acc, m, l = over_keys(
        q_tile, scales, k, v, page_table, kv_head, begin, end, rows, shared, 0, rows,
        KV_HEADS, HEAD_DIM, V_DIM, "none", CAP, PAGE_SIZE, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_V,
    )  # fmt: skip
    if v_scale is not None:
        acc *= tl.load(v_scale + kv_head)
    slots = part.to(tl.int64) * tokens * (KV_HEADS * GROUP) + q_rows
    dims = tl.arange(0, BLOCK_V)
    tl.store(part_m + slots, m, mask=live)
    tl.store(part_l + slots, l, mask=live)
    tl.store(part_acc + slots[:, None] * V_DIM + dims[None, :], acc, mask=live[:, None] & (dims < V_DIM)[None, :])
