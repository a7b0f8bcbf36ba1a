"""Which tiles a program of flash_prefill_tma takes, and the warp that copies their K and V into shared memory."""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from kaudit_kernels.triton.prefill_tile import key_ranges

ROWS: gl.constexpr = gl.constexpr(64)  # of a warpgroup: the m64 of wgmma. A tile has two.


@gluon.jit
def rounds_of(lens, KV_HEADS: gl.constexpr):
    """Tiles that a program takes."""
    _, _, batch, tiles, _ = lens
    return gl.cdiv(batch * tiles * KV_HEADS, gl.num_programs(0))


@gluon.jit
def blocks_of(turn, lens, KV_HEADS: gl.constexpr, GROUP: gl.constexpr, MASK: gl.constexpr, BLOCK_N: gl.constexpr):
    """The tile that this program takes at its turn, and which blocks of keys that tile sees: those of [bottom, top),
    of which [full_bottom, full_top) unmasked. None, bottom = top, if there is no such tile.

    Requests one after another, since the K and V of one fit the L2; of a request the tiles with the most keys first;
    every other turn the other way round, so that no program always gets the longer ones.
    """
    q_start, kv_lens, batch, tiles, window = lens
    programs = gl.num_programs(0)
    place = gl.program_id(0)
    if turn % 2 == 1:
        place = programs - 1 - place
    work = turn * programs + place
    request = gl.minimum(work // (tiles * KV_HEADS), batch - 1)
    tile = tiles - 1 - work // KV_HEADS % tiles
    kv_head = work % KV_HEADS
    first_token = gl.load(q_start + request)
    q_len = gl.load(q_start + request + 1) - first_token
    kv_len = gl.load(kv_lens + request)
    low, low_full, high_full, high = key_ranges(tile, q_len, kv_len, window, GROUP, MASK, 2 * ROWS, BLOCK_N)
    bottom, full_bottom = low // BLOCK_N, low_full // BLOCK_N
    full_top, top = high_full // BLOCK_N, gl.cdiv(high, BLOCK_N)
    if work >= batch * tiles * KV_HEADS:
        top = bottom
    if tile * 2 * ROWS >= q_len * GROUP:
        top = bottom
    return request, kv_head, tile, first_token, q_len, kv_len, bottom, full_bottom, full_top, top


@gluon.jit
def copy_blocks(
    k, v, kv_start, page_table, pages, k_tiles, v_tiles, barriers, lens,
    KV_HEADS: gl.constexpr, GROUP: gl.constexpr, HEAD_DIM: gl.constexpr, MASK: gl.constexpr, PAGE_SIZE: gl.constexpr,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy the K and V of every block of every tile, last block first, as soon as a stage is free.

    The K of a block goes before the V of the block before it: in that order they are needed.
    """
    k_full, k_free, v_full, v_free = barriers
    count = 0
    v_row, v_column = 0, 0
    for turn in range(rounds_of(lens, KV_HEADS)):
        request, kv_head, _, _, _, _, bottom, _, _, top = blocks_of(turn, lens, KV_HEADS, GROUP, MASK, BLOCK_N)
        base = gl.load(kv_start + request).to(gl.int32)
        for i in range(top - bottom):
            start = (top - 1 - i) * BLOCK_N
            row = base + start
            if PAGE_SIZE:
                page = gl.load(page_table + request.to(gl.int64) * pages + start // PAGE_SIZE)
                row = page * PAGE_SIZE + start % PAGE_SIZE
            column = kv_head * HEAD_DIM
            _copy_block(k, row, column, count, k_full, k_free, k_tiles, STAGES)
            if count > 0:
                _copy_block(v, v_row, v_column, count - 1, v_full, v_free, v_tiles, STAGES)
            v_row, v_column = row, column
            count += 1
    if count > 0:
        _copy_block(v, v_row, v_column, count - 1, v_full, v_free, v_tiles, STAGES)


@gluon.jit
def _copy_block(x, row, column, count, full, free, tiles, STAGES: gl.constexpr):
    """Block `count` of K or V, into its stage once both warpgroups have left it."""
    stage = count % STAGES
    mbarrier.wait(free.index(stage), count // STAGES % 2 ^ 1)
    mbarrier.expect(full.index(stage), x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [row, column], full.index(stage), tiles.index(stage))
