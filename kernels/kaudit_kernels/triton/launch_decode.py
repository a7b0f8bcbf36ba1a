"""Grids, tiles and shares of the decode kernels. Triton is imported at the first launch: a box without it decides."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit_kernels.eager_attention import SOFTCAP
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.masks import visible
from kaudit_kernels.problem import Problem
from kaudit_kernels.triton.launch import power_of_two
from kaudit_kernels.triton.launch_prefill import LOG2_E, softmax_scale

MIN_CHUNK = 256
"""Keys below which a part does too little to pay for its share of the merge."""
MERGED = 32
"""Parts that the merge holds in registers at once: 32 * 128 float32 over 128 threads are 32 registers a thread."""


@dataclass(frozen=True)
class Tile:
    """How a decode kernel cuts its work."""

    block_n: int
    """Keys of one step."""
    warps: int = 4
    stages: int = 3
    """Tiles of K and V on their way at once, and one."""
    fill: int = 8
    """Programs for each SM that parts are made for: the last round of a few rounds is never far from full."""


@dataclass(frozen=True)
class Shares:
    """How the keys of a batch are shared out. The device counts whose each part is, by `wanted` and `step`."""

    wanted: int
    """Parts of all requests together that fill the GPU."""
    step: int
    """Keys of a tile: a part is whole ones."""
    parts: int
    """Those that there are; in a CUDA graph the most that lengths can make."""
    whole: bool
    """No request has more than one. False in a CUDA graph, where nobody knows."""


@dataclass(frozen=True)
class Parts:
    """What parts leave for the merge, in float32: [slots, v_head_dim], [slots] and [slots]."""

    acc: Tensor
    m: Tensor
    l: Tensor  # noqa: E741 (as papers have it)


def split_kv_decode(q: Tensor, inputs: Inputs, tile: Tile | None = None) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through; `tile` is for trying others than its own."""
    problem = inputs.problem
    tile = tile or tile_of(problem, problem.query_rows)
    shares = planned(inputs, tile, 0)
    out = q.new_empty(problem.tokens, problem.q_heads, problem.v_head_dim)
    parts = empty_parts(0 if shares.whole else _slots(problem, shares), problem, q.device)
    _launch_parts(q, inputs, tile, shares, 0, shares.whole, out, parts)
    if not shares.whole:
        merge(out, inputs, parts, shares, 0, 0)
    return out


def cascade_decode(q: Tensor, inputs: Inputs, tile: Tile | None = None) -> Tensor:
    """As split_kv_decode, for requests that share their first `problem.shared_prefix` tokens; `tile` is for both.

    So many tokens, a number of the host: a CUDA graph is for one shared prefix, whose pages the first request's row of
    the table has to name at each replay. A request that is no longer does not share it, such as padding: its keys are
    its own parts, and the merge leaves out what its rows saw of the prefix. They are rows of the prefix's work all the
    same, since at the next replay they may be somebody's.
    """
    from kaudit_kernels.triton.cascade_decode import cascade_prefix_kernel

    problem, cache, shared = inputs.problem, inputs.cache, inputs.problem.shared_prefix
    rows = problem.tokens * problem.group
    prefix_tile, own_tile = tile or tile_of(problem, rows), tile or tile_of(problem, problem.query_rows)
    shares = planned(inputs, own_tile, shared)
    chunk = chunk_of(shared, _wanted(problem, prefix_tile, rows), prefix_tile.block_n)
    prefix_parts = -(-shared // chunk)
    block_m = _block_m(rows)
    out = q.new_empty(problem.tokens, problem.q_heads, problem.v_head_dim)
    own = _slots(problem, shares)
    parts = empty_parts(own + prefix_parts * problem.tokens * problem.q_heads, problem, q.device)
    cascade_prefix_kernel[(-(-rows // block_m), problem.kv_heads, prefix_parts)](
        q,
        cache.k,
        cache.v,
        cache.k_scale,
        cache.v_scale,
        parts.acc[own:],
        parts.m[own:],
        parts.l[own:],
        cache.page_table,
        problem.tokens,
        softmax_scale(problem),
        shared,
        chunk,
        **_dims(problem),
        BLOCK_M=block_m,
        BLOCK_N=prefix_tile.block_n,
        num_warps=prefix_tile.warps,
        num_stages=prefix_tile.stages,
    )
    _launch_parts(q, inputs, own_tile, shares, shared, False, out, parts)
    merge(out, inputs, parts, shares, shared, prefix_parts)
    return out


def _launch_parts(
    q: Tensor, inputs: Inputs, tile: Tile, shares: Shares, shared: int, whole: bool, out: Tensor, parts: Parts
) -> None:
    from kaudit_kernels.triton.split_kv_decode import split_kv_decode_kernel

    problem, cache = inputs.problem, inputs.cache
    rows = problem.query_rows
    block_m = _block_m(rows)
    split_kv_decode_kernel[(shares.parts * problem.kv_heads * -(-rows // block_m),)](
        q,
        cache.k,
        cache.v,
        cache.k_scale,
        cache.v_scale,
        inputs.sinks,
        out,
        parts.acc,
        parts.m,
        parts.l,
        cache.q_start,
        cache.kv_lens,
        cache.page_table,
        problem.batch,
        cache.page_table.shape[1],
        softmax_scale(problem),
        shared,
        problem.window,
        ancestry(problem),
        shares.wanted,
        **_dims(problem),
        MASK=mask_of(problem),
        WHOLE=whole,
        ROWS=rows,
        BATCH=power_of_two(problem.batch),
        MIN_CHUNK=MIN_CHUNK,
        BLOCK_M=block_m,
        BLOCK_N=tile.block_n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def merge(out: Tensor, inputs: Inputs, parts: Parts, shares: Shares, shared: int, prefix_parts: int) -> None:
    """Weigh the parts of each query and head, and those of the shared prefix behind them, into `out`."""
    from kaudit_kernels.triton.split_kv_decode import split_kv_merge_kernel

    problem, cache = inputs.problem, inputs.cache
    split_kv_merge_kernel[(problem.tokens * problem.q_heads,)](
        parts.acc,
        parts.m,
        parts.l,
        inputs.sinks,
        out,
        cache.q_start,
        cache.kv_lens,
        problem.batch,
        shared,
        problem.window,
        shares.wanted,
        shares.step,
        _slots(problem, shares),
        prefix_parts,
        KV_HEADS=problem.kv_heads,
        GROUP=problem.group,
        V_DIM=problem.v_head_dim,
        MASK=mask_of(problem),
        ROWS=problem.query_rows,
        BATCH=power_of_two(problem.batch),
        MIN_CHUNK=MIN_CHUNK,
        BLOCK_P=MERGED,
        BLOCK_V=power_of_two(problem.v_head_dim),
        num_warps=4,
    )


def tile_of(problem: Problem, rows: int) -> Tile:
    """Of a product of so many rows. 48 or 64 KiB on their way in each of two or three programs cover an H200's latency.

    With the scores they fit the 99 KiB of an sm_120, where 64 rows of head dim 256 leave room for half of that.
    """
    size = 2 if problem.kv_dtype == problem.dtype else 1
    token = size * (power_of_two(problem.head_dim) + power_of_two(problem.v_head_dim))
    many = _block_m(rows) == 64
    keys = (16 if many and token >= 512 * size else 32) * 1024 // token
    block_n = min(1 << keys.bit_length() - 1, 64)
    return Tile(block_n, warps=8 if many else 4, stages=4 if block_n * token <= 16 * 1024 else 3)


def unshared(problem: Problem, shared: int) -> list[int]:
    """Keys of each request that its queries see, and that are not in the shared prefix, if it shares that."""
    lens = []
    for q_len, kv_len in zip(problem.q_lens, problem.kv_lens, strict=True):
        first = shared if kv_len > shared else 0
        if problem.mask == "window":
            first = max(kv_len - q_len - problem.window + 1, 0)
        lens.append(kv_len - first)
    return lens


def planned(inputs: Inputs, tile: Tile, shared: int) -> Shares:
    """For the lengths that the host knows; in a CUDA graph for any that the page table has room for."""
    problem = inputs.problem
    if not problem.graphed:
        return shares_of(problem, tile, unshared(problem, shared))
    wanted = _wanted(problem, tile, problem.query_rows)
    keys = inputs.cache.page_table.shape[1] * problem.page_size
    if problem.mask == "window":
        keys = min(keys, problem.window + problem.q_len - 1)
    # By the first, all requests' keys / chunk <= wanted, and each rounds up by less than one; by the other,
    # chunk >= MIN_CHUNK.
    most = min(wanted + problem.batch - 1, problem.batch * -(-keys // MIN_CHUNK))
    return Shares(wanted, tile.block_n, most, whole=False)


def shares_of(problem: Problem, tile: Tile, lens: list[int]) -> Shares:
    """Of requests with these numbers of keys."""
    wanted = _wanted(problem, tile, problem.query_rows)
    chunk = chunk_of(sum(lens), wanted, tile.block_n)
    return Shares(wanted, tile.block_n, sum(-(-each // chunk) for each in lens), max(lens) <= chunk)


def chunk_of(keys: int, wanted: int, step: int) -> int:
    """Most keys of a part, where so many keys of all requests make about `wanted`: whole tiles of `step`.

    _parts of split_kv_decode.py and warp_decode_kernel of split_kv_decode.cu count the same on the device.
    """
    chunk = max(-(-keys // wanted), MIN_CHUNK)
    return -(-chunk // step) * step


def _wanted(problem: Problem, tile: Tile, rows: int) -> int:
    """Parts that fill the GPU: each has a program for every KV head and every tile of these rows."""
    return -(-tile.fill * problem.sm_count // (problem.kv_heads * -(-rows // _block_m(rows))))


def empty_parts(slots: int, problem: Problem, device: torch.device) -> Parts:
    """Memory for so many; a slot is one (part, query, head). 0 where each request is one part, which has no merge."""

    def empty(*shape: int) -> Tensor:
        return torch.empty(slots, *shape, dtype=torch.float32, device=device)

    return Parts(empty(problem.v_head_dim), empty(), empty())


def mask_of(problem: Problem) -> str:
    """The mask, where it hides a key that is there; a single query is the last token, and sees all of them."""
    return "none" if max(problem.q_lens) <= 1 and problem.mask != "window" else problem.mask


def ancestry(problem: Problem) -> int:
    """Bit 8 * i + j: new token i sees new token j; as a signed number of 64 bits. 0 unless the mask is a tree."""
    if mask_of(problem) != "tree":
        return 0
    q_len = max(problem.q_lens)
    sees = visible("tree", 0, q_len, q_len, 0).tolist()
    bits = sum(1 << (8 * i + j) for i, row in enumerate(sees) for j, seen in enumerate(row) if seen)
    return bits - (1 << 64) if bits >> 63 else bits


def _slots(problem: Problem, shares: Shares) -> int:
    return shares.parts * problem.kv_heads * problem.query_rows


def _block_m(rows: int) -> int:
    """16 rows are the fewest that a tensor core takes; 64 of head dim 256 are an output that registers still hold."""
    return min(max(power_of_two(rows), 16), 64)


def _dims(problem: Problem) -> dict[str, int | float]:
    """Constants that both kernels over keys take."""
    return {
        "KV_HEADS": problem.kv_heads,
        "GROUP": problem.group,
        "HEAD_DIM": problem.head_dim,
        "V_DIM": problem.v_head_dim,
        "CAP": SOFTCAP * LOG2_E if "softcap" in problem.features else 0.0,
        "PAGE_SIZE": problem.page_size,
        "BLOCK_D": power_of_two(problem.head_dim),
        "BLOCK_V": power_of_two(problem.v_head_dim),
    }
