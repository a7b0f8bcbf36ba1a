"""Attention of a few queries a request over a paged cache, its keys split over several programs, and the parts' merge.

Decode queries have no tiles to fill a GPU with, so the keys are shared out, in parts of about the same number of keys
whichever request they are of: long requests have more parts, not longer ones. Each part leaves its running maximum, sum
and unnormalised output in float32; the merge weighs them by their maxima, so no part can overflow another. How long a
part is, and which is whose, every program counts from the lengths on the device. The host says how many parts would
fill the GPU, and starts programs for as many as there are, or, in a CUDA graph, can be: those too many end at once.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kaudit_kernels.triton.decode_tile import load_rows, over_keys


@triton.jit
def _first_key(q_len, kv_len, shared, window, MASK: tl.constexpr):
    """The first key that is not in the shared prefix, and that some query of the request sees.

    A request that is no longer than the prefix does not share it: one that fills up the batch of a CUDA graph.
    """
    return tl.maximum(kv_len - q_len - window + 1, 0) if MASK == "window" else tl.where(kv_len > shared, shared, 0)


@triton.jit
def _parts(
    q_start, kv_lens, requests, batch, shared, window, wanted, step, MASK: tl.constexpr, MIN_CHUNK: tl.constexpr
):  # fmt: skip
    """The number of parts of each of the requests, which are all of the batch, and 0 for those past it.

    A part has at most so many keys, whole tiles of `step`, that there are about `wanted`: chunk_of in launch_decode.py.
    """
    there = requests < batch
    kv_len = tl.load(kv_lens + requests, mask=there, other=0)
    q_len = tl.load(q_start + requests + 1, mask=there, other=0) - tl.load(q_start + requests, mask=there, other=0)
    own = tl.where(there, kv_len - _first_key(q_len, kv_len, shared, window, MASK), 0)
    chunk = tl.maximum(tl.cdiv(tl.sum(own, axis=0), wanted), MIN_CHUNK)
    return tl.cdiv(own, tl.cdiv(chunk, step) * step)


# Numbers that vary from batch to batch must not compile anew when one happens to be 1 or a multiple of 16.
@triton.jit(do_not_specialize=["batch", "pages", "shared", "window", "wanted", "tree"])
def split_kv_decode_kernel(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    k,  # [rows, KV_HEADS, HEAD_DIM]
    v,  # [rows, KV_HEADS, V_DIM]
    k_scale,  # [KV_HEADS] float32, or None
    v_scale,  # [KV_HEADS] float32, or None
    sinks,  # [KV_HEADS * GROUP] float32, or None; read if WHOLE
    out,  # [tokens, KV_HEADS * GROUP, V_DIM], written if WHOLE
    part_acc,  # [parts, KV_HEADS, ROWS, V_DIM] float32, unless WHOLE
    part_m,  # [parts, KV_HEADS, ROWS] float32, in units of log2, unless WHOLE
    part_l,  # [parts, KV_HEADS, ROWS] float32, unless WHOLE
    q_start,  # [batch + 1] int32
    kv_lens,  # [batch] int32
    page_table,  # [batch, pages] int32
    batch,
    pages,
    scale,  # takes the product of q and k to units of log2; with CAP to parts of it
    shared,  # keys at the start of every longer request that others take care of; 0 with a window
    window,  # keys a query sees, if MASK is "window"
    tree,  # bit 8 * i + j: new token i sees new token j, if MASK is "tree"
    wanted,  # parts of all requests together that fill the GPU
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_DIM: tl.constexpr,
    MASK: tl.constexpr,
    CAP: tl.constexpr,  # in units of log2; 0 for none
    WHOLE: tl.constexpr,  # no request has more than one part
    PAGE_SIZE: tl.constexpr,
    ROWS: tl.constexpr,  # (query, head of the group) pairs of the request with most queries
    BATCH: tl.constexpr,  # the power of two >= batch
    MIN_CHUNK: tl.constexpr,  # keys below which no part is cut
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # the power of two >= HEAD_DIM
    BLOCK_V: tl.constexpr,  # the power of two >= V_DIM
):
    # Heads of the same keys run side by side: their K and V lie side by side.
    tiles: tl.constexpr = (ROWS + BLOCK_M - 1) // BLOCK_M
    program = tl.program_id(0)
    kv_head = program % KV_HEADS
    tile = program // KV_HEADS % tiles
    part = program // (KV_HEADS * tiles)
    requests = tl.arange(0, BATCH)
    counts = _parts(q_start, kv_lens, requests, batch, shared, window, wanted, BLOCK_N, MASK, MIN_CHUNK)
    request = tl.sum((tl.cumsum(counts, axis=0) <= part).to(tl.int32), axis=0)
    if request >= batch:  # past the last part
        return
    nth = part - tl.sum(tl.where(requests < request, counts, 0), axis=0)
    count = tl.sum(tl.where(requests == request, counts, 0), axis=0)

    first_token = tl.load(q_start + request)
    q_len = tl.load(q_start + request + 1) - first_token
    if tile * BLOCK_M >= q_len * GROUP:
        return
    kv_len = tl.load(kv_lens + request)
    first = _first_key(q_len, kv_len, shared, window, MASK)
    # As even as whole tiles allow. Rounded up to tiles it is no longer than a part may be, so the last is never empty.
    length = tl.cdiv(tl.cdiv(kv_len - first, count), BLOCK_N) * BLOCK_N
    begin = first + nth * length
    end = tl.minimum(begin + length, kv_len)

    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    queries = rows // GROUP
    live = queries < q_len
    heads = kv_head * GROUP + rows % GROUP
    q_rows = (first_token + queries).to(tl.int64) * (KV_HEADS * GROUP) + heads
    q_tile, scales = load_rows(q, q_rows, live, scale, k_scale, kv_head, HEAD_DIM, BLOCK_D)
    ancestors = ((tree.to(tl.int64) >> (8 * tl.minimum(queries, 7))) & 255).to(tl.int32)
    acc, m, l = over_keys(
        q_tile, scales, k, v, page_table + request.to(tl.int64) * pages, kv_head, begin, end,
        kv_len - q_len + queries, kv_len - q_len, window, ancestors,
        KV_HEADS, HEAD_DIM, V_DIM, MASK, CAP, PAGE_SIZE, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_V,
    )  # fmt: skip
    if v_scale is not None:
        acc *= tl.load(v_scale + kv_head)
    dims = tl.arange(0, BLOCK_V)
    stored = live[:, None] & (dims < V_DIM)[None, :]
    if WHOLE:
        if sinks is not None:
            sink = tl.load(sinks + heads) * 1.4426950408889634  # log2(e)
            top = tl.maximum(m, sink)
            weight = tl.exp2(m - top)
            acc *= weight[:, None]
            l = l * weight + tl.exp2(sink - top)
        tl.store(out + q_rows[:, None] * V_DIM + dims[None, :], acc / l[:, None], mask=stored)
    else:
        slots = (part.to(tl.int64) * KV_HEADS + kv_head) * ROWS + rows
        tl.store(part_m + slots, m, mask=live)
        tl.store(part_l + slots, l, mask=live)
        tl.store(part_acc + slots[:, None] * V_DIM + dims[None, :], acc, mask=stored)


@triton.jit(do_not_specialize=["batch", "shared", "window", "wanted", "step", "prefix_slot", "prefix_parts"])
def split_kv_merge_kernel(
    part_acc,  # of the requests as above, and of their shared prefix [prefix_parts, tokens, heads, V_DIM]
    part_m,
    part_l,
    sinks,  # [KV_HEADS * GROUP] float32, or None
    out,  # [tokens, KV_HEADS * GROUP, V_DIM]
    q_start,  # [batch + 1] int32
    kv_lens,  # [batch] int32
    batch,
    shared,
    window,
    wanted,
    step,  # keys of the tiles that parts are made of
    prefix_slot,  # the first of the prefix's slots
    prefix_parts,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    V_DIM: tl.constexpr,
    MASK: tl.constexpr,
    ROWS: tl.constexpr,
    BATCH: tl.constexpr,
    MIN_CHUNK: tl.constexpr,
    BLOCK_P: tl.constexpr,  # parts in registers at once
    BLOCK_V: tl.constexpr,
):
    program = tl.program_id(0)
    token, head = program // (KV_HEADS * GROUP), program % (KV_HEADS * GROUP)
    requests = tl.arange(0, BATCH)
    ends = tl.load(q_start + requests + 1, mask=requests < batch, other=2147483647)
    request = tl.sum((ends <= token).to(tl.int32), axis=0)
    counts = _parts(q_start, kv_lens, requests, batch, shared, window, wanted, step, MASK, MIN_CHUNK)
    before = tl.sum(tl.where(requests < request, counts, 0), axis=0)
    count = tl.sum(tl.where(requests == request, counts, 0), axis=0)
    row = (token - tl.load(q_start + request)) * GROUP + head % GROUP
    own = (before.to(tl.int64) * KV_HEADS + head // GROUP) * ROWS + row
    prefix_parts = tl.where(tl.load(kv_lens + request) > shared, prefix_parts, 0)  # 0 for who does not share it
    dims = tl.arange(0, BLOCK_V)
    inside = (dims < V_DIM)[None, :]
    m = float("-inf")
    l = 0.0
    if sinks is not None:
        # A sink is one more key, of weight exp2(0) to begin with, and of no value.
        m = tl.load(sinks + head) * 1.4426950408889634  # log2(e)
        l += 1.0
    acc = tl.zeros((BLOCK_V,), tl.float32)
    for start in range(0, count + prefix_parts, BLOCK_P):
        parts = start + tl.arange(0, BLOCK_P)
        there = parts < count + prefix_parts
        of_prefix = prefix_slot + program + (parts - count).to(tl.int64) * tl.num_programs(0)
        slots = tl.where(parts < count, own + parts.to(tl.int64) * (KV_HEADS * ROWS), of_prefix)
        part_max = tl.load(part_m + slots, mask=there, other=float("-inf"))
        part_sum = tl.load(part_l + slots, mask=there, other=0.0)
        part = tl.load(part_acc + slots[:, None] * V_DIM + dims[None, :], mask=there[:, None] & inside, other=0.0)
        m_new = tl.maximum(m, tl.max(part_max, axis=0))
        # A query may see nothing of the first parts; minus infinity taken from itself would be NaN.
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        weight = tl.exp2(part_max - shift)
        rescale = tl.exp2(m - shift)
        l = l * rescale + tl.sum(part_sum * weight, axis=0)
        acc = acc * rescale + tl.sum(part * weight[:, None], axis=0)
        m = m_new
    tl.store(out + program.to(tl.int64) * V_DIM + dims, acc / l, mask=dims < V_DIM)
