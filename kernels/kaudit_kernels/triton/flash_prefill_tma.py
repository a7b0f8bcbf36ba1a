"""Attention of many queries on Hopper: one warp keeps TMA copies of K and V coming, two warpgroups multiply.

In Gluon, since Triton's own pipeliner waits for each product before it begins the next. Each warpgroup has 64 rows of a
tile of 128 and runs the product of scores of one block beside the product of weights and V of the block before, and its
softmax beside the other warpgroup's products. As many programs as SMs take the tiles one after another, so that the
copies for the next tile are on their way while the last one is divided and stored.
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kaudit_kernels.triton.prefill_copies import ROWS, blocks_of, copy_blocks, rounds_of
from kaudit_kernels.triton.prefill_tile import seen_by_position, softmax_step


@gluon.jit(do_not_specialize=["pages", "window", "batch", "tiles"])
def flash_prefill_tma_kernel(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    k,  # descriptor of [rows, KV_HEADS * HEAD_DIM], BLOCK_N rows of a head at a time
    v,  # as k
    out,  # as q
    q_start,  # [batch + 1] int32
    kv_lens,  # [batch] int32
    kv_start,  # [batch] int64, zeros if PAGE_SIZE
    page_table,  # [batch, pages] int32, read if PAGE_SIZE
    pages,
    batch,
    tiles,  # of 128 rows, of the longest request
    scale,  # of the scores, to units of log2
    window,  # keys a query sees, read if MASK is window
    KV_HEADS: gl.constexpr,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    MASK: gl.constexpr,
    PAGE_SIZE: gl.constexpr,  # a multiple of BLOCK_N; 0: a request's rows follow one another
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    TURNS: gl.constexpr,  # the warpgroups issue their products by turns
):
    q_tiles = gl.allocate_shared_memory(
        k.dtype, [2, ROWS, HEAD_DIM], gl.NVMMASharedLayout.get_default_for([ROWS, HEAD_DIM], k.dtype)
    )
    k_tiles = gl.allocate_shared_memory(k.dtype, [STAGES, BLOCK_N, HEAD_DIM], k.layout)
    v_tiles = gl.allocate_shared_memory(v.dtype, [STAGES, BLOCK_N, HEAD_DIM], v.layout)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_free.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(turns.index(i), count=1)
    fence_async_shared()

    barriers = (k_full, k_free, v_full, v_free)
    lens = (q_start, kv_lens, batch, tiles, window)
    gl.warp_specialize(
        [
            (
                _multiply,
                (0, q, out, q_tiles.index(0), k_tiles, v_tiles, barriers, turns, lens, scale,
                 KV_HEADS, GROUP, HEAD_DIM, MASK, BLOCK_N, STAGES, TURNS),
            ),
            (
                _multiply,
                (1, q, out, q_tiles.index(1), k_tiles, v_tiles, barriers, turns, lens, scale,
                 KV_HEADS, GROUP, HEAD_DIM, MASK, BLOCK_N, STAGES, TURNS),
            ),
            (
                copy_blocks,
                (k, v, kv_start, page_table, pages, k_tiles, v_tiles, barriers, lens,
                 KV_HEADS, GROUP, HEAD_DIM, MASK, PAGE_SIZE, BLOCK_N, STAGES),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


@gluon.jit
def _multiply(
    WHO: gl.constexpr, q, out, q_tile, k_tiles, v_tiles, barriers, turns, lens, scale,
    KV_HEADS: gl.constexpr, GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, MASK: gl.constexpr,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """One warpgroup: rows WHO * 64 to WHO * 64 + 63 of every tile."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    # 16 bytes a thread, whole rows a warp.
    wide: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [4, 1], [1, 0])
    k_full, k_free, v_full, v_free = barriers
    window = lens[4]
    count = 0
    for turn in range(rounds_of(lens, KV_HEADS)):
        _request, kv_head, tile, first_token, q_len, kv_len, bottom, full_bottom, full_top, top = blocks_of(
            turn, lens, KV_HEADS, GROUP, MASK, BLOCK_N
        )
        if top > bottom:
            first_row = tile * 2 * ROWS + WHO * ROWS
            rows = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, wide))
            dims = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, wide))
            token = (first_token + rows // GROUP).to(gl.int64)
            offsets = (token * (KV_HEADS * GROUP) + kv_head * GROUP + rows % GROUP)[:, None] * HEAD_DIM + dims[None, :]
            live = (rows < q_len * GROUP)[:, None]
            q_tile.store(gl.load(q + offsets, mask=live, other=0.0))
            fence_async_shared()

            own = kv_len - q_len + (first_row + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))) // GROUP
            m = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, s_layout))
            l = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, s_layout))
            acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, o_layout)

            # The last block of keys: nothing to add to yet, and the one that may reach past the request's end.
            stage, phase = count % STAGES, count // STAGES % 2
            mbarrier.wait(k_full.index(stage), phase)
            if TURNS:
                mbarrier.wait(turns.index(WHO), (count + WHO + 1) % 2)
            scores = _product(q_tile, k_tiles.index(stage), s_layout, BLOCK_N)
            if TURNS:
                mbarrier.arrive(turns.index(1 - WHO), count=1)
            scores = warpgroup_mma_wait(0, [scores])
            mbarrier.arrive(k_free.index(stage), count=1)
            p, _, m, l = _weigh(scores, m, l, own, top - 1, kv_len, window, scale, s_layout, MASK, BLOCK_N, True)
            p = gl.convert_layout(p.to(q.dtype.element_ty), p_layout)
            if top * BLOCK_N > kv_len:
                mbarrier.wait(v_full.index(stage), phase)
                _clear(v_tiles.index(stage), kv_len - (top - 1) * BLOCK_N, wide, BLOCK_N)
            count += 1

            full = gl.minimum(full_top, top - 1)
            for i in range(top - 1 - full):
                acc, m, l, p = _step(
                    WHO, acc, m, l, p, count + i, q_tile, k_tiles, v_tiles, barriers, turns, own, top - 2 - i,
                    kv_len, window, scale, s_layout, MASK, BLOCK_N, STAGES, TURNS, True,
                )  # fmt: skip
            count += top - 1 - full
            partial = gl.minimum(full_bottom, full)
            for i in range(full - partial):
                acc, m, l, p = _step(
                    WHO, acc, m, l, p, count + i, q_tile, k_tiles, v_tiles, barriers, turns, own, full - 1 - i,
                    kv_len, window, scale, s_layout, MASK, BLOCK_N, STAGES, TURNS, False,
                )  # fmt: skip
            count += full - partial
            if MASK == "window":
                for i in range(partial - bottom):
                    acc, m, l, p = _step(
                        WHO, acc, m, l, p, count + i, q_tile, k_tiles, v_tiles, barriers, turns, own, partial - 1 - i,
                        kv_len, window, scale, s_layout, MASK, BLOCK_N, STAGES, TURNS, True,
                    )  # fmt: skip
                count += partial - bottom

            stage, phase = (count - 1) % STAGES, (count - 1) // STAGES % 2
            mbarrier.wait(v_full.index(stage), phase)
            acc = warpgroup_mma(p, v_tiles.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(0, [acc])
            mbarrier.arrive(v_free.index(stage), count=1)
            # Rows past the last query may divide zero by zero; they are not stored.
            acc = acc / gl.convert_layout(l, gl.SliceLayout(1, o_layout))[:, None]
            gl.store(out + offsets, gl.convert_layout(acc.to(q.dtype.element_ty), wide), mask=live)


@gluon.jit
def _step(
    WHO: gl.constexpr, acc, m, l, p, count, q_tile, k_tiles, v_tiles, barriers, turns, own, block, kv_len, window,
    scale, s_layout: gl.constexpr, MASK: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, TURNS: gl.constexpr,
    MASKED: gl.constexpr,
):  # fmt: skip
    """The scores of a block of keys, beside the product of the weights and V of the block before."""
    k_full, k_free, v_full, v_free = barriers
    stage, phase = count % STAGES, count // STAGES % 2
    before, phase_before = (count - 1) % STAGES, (count - 1) // STAGES % 2
    mbarrier.wait(k_full.index(stage), phase)
    if TURNS:
        # Each takes one turn a block. A barrier that nobody has arrived at counts as passed once: the first begins.
        mbarrier.wait(turns.index(WHO), (count + WHO + 1) % 2)
    scores = _product(q_tile, k_tiles.index(stage), s_layout, BLOCK_N)
    mbarrier.wait(v_full.index(before), phase_before)
    acc = warpgroup_mma(p, v_tiles.index(before), acc, is_async=True)
    if TURNS:
        mbarrier.arrive(turns.index(1 - WHO), count=1)
    scores = warpgroup_mma_wait(1, [scores])
    mbarrier.arrive(k_free.index(stage), count=1)
    p_next, rescale, m, l = _weigh(scores, m, l, own, block, kv_len, window, scale, s_layout, MASK, BLOCK_N, MASKED)
    acc = warpgroup_mma_wait(0, [acc])
    mbarrier.arrive(v_free.index(before), count=1)
    acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, acc.type.layout))[:, None]
    return acc, m, l, gl.convert_layout(p_next.to(p.dtype), p.type.layout)


@gluon.jit
def _product(q_tile, k_tile, s_layout: gl.constexpr, BLOCK_N: gl.constexpr):
    """The scores of a block of keys, on their way."""
    nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, s_layout)
    return warpgroup_mma(q_tile, k_tile.permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def _weigh(
    scores, m, l, own, block, kv_len, window, scale,
    s_layout: gl.constexpr, MASK: gl.constexpr, BLOCK_N: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """softmax_step of a block of keys, masked if MASKED."""
    if MASKED:
        keys = block * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, s_layout))
        scores = gl.where(seen_by_position(keys, own, kv_len, window, MASK), scores, float("-inf"))
    return softmax_step(scores, m, l, scale, MASKED)


@gluon.jit
def _clear(v_tile, length, wide: gl.constexpr, BLOCK_N: gl.constexpr):
    """Put zeros in the rows of V past `length`: they may hold NaN, and NaN times a weight of zero is NaN.

    Both warpgroups do it, each before its own product, and write the same: neither has to wait for the other.
    """
    few: gl.constexpr = 16
    for i in gl.static_range(BLOCK_N // few):
        chunk = v_tile.slice(i * few, few)
        rows = i * few + gl.arange(0, few, gl.SliceLayout(1, wide))
        value = chunk.load(wide)
        chunk.store(gl.where((rows < length)[:, None], value, gl.zeros_like(value)))
    fence_async_shared()
