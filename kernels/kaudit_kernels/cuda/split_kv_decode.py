"""The launch of split_kv_decode.cu; its parts are shared out, and merged, as those of the Triton kernel."""

from torch import Tensor

from kaudit_kernels.cuda.module import launch
from kaudit_kernels.eager_attention import SOFTCAP
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.triton.launch_decode import MIN_CHUNK, Tile, empty_parts, merge, planned
from kaudit_kernels.triton.launch_prefill import LOG2_E, softmax_scale

WARPS = 4
"""Of a block; as in the source."""
ROWS = 8
"""The most (query, head of the group) pairs: the columns of a tensor-core product."""

FLOAT = {"fp16": "Half", "bf16": "BFloat16"}
BYTES = {"fp8_e4m3": "E4M3", "fp8_e5m2": "E5M2", "int8": "Int8"}


def warp_decode(q: Tensor, inputs: Inputs, fill: int = 3, heads: int | None = None) -> Tensor:
    """As eager_attention.attention, for what the catalogue lets through; `fill` as in Tile, `heads` of a block.

    3 blocks stay on an SM. With a fill of 3 64 requests of 4096 keys are one part each, whose fp8 an H200 reads at 3.8
    TB/s; with 6 they are two and a merge, at 2.8.
    """
    problem, cache = inputs.problem, inputs.cache
    heads = heads or heads_of_block(problem.kv_heads)
    tile = Tile(_keys(problem.kv_dtype, problem.head_dim) // heads, fill=fill)
    shares = planned(inputs, tile, 0)
    rows = problem.query_rows
    out = q.new_empty(problem.tokens, problem.q_heads, problem.head_dim)
    parts = empty_parts(0 if shares.whole else shares.parts * problem.kv_heads * rows, problem, q.device)
    launch(
        "split_kv_decode.cu",
        instance(problem.dtype, problem.kv_dtype, problem.head_dim, heads),
        (shares.parts * problem.kv_heads // heads, 1),
        32 * WARPS,
        q.data_ptr(),
        cache.k.data_ptr(),
        cache.v.data_ptr(),
        _address(cache.k_scale),
        _address(cache.v_scale),
        _address(inputs.sinks),
        out.data_ptr(),
        parts.acc.data_ptr(),
        parts.m.data_ptr(),
        parts.l.data_ptr(),
        cache.q_start.data_ptr(),
        cache.kv_lens.data_ptr(),
        cache.page_table.data_ptr(),
        problem.batch,
        cache.page_table.shape[1],
        problem.page_size,
        problem.kv_heads,
        problem.group,
        rows,
        int(problem.mask != "none"),
        problem.window if problem.mask == "window" else 0,
        shares.wanted,
        MIN_CHUNK,
        int(shares.whole),
        softmax_scale(problem),
        SOFTCAP * LOG2_E if "softcap" in problem.features else 0.0,
    )
    if not shares.whole:
        merge(out, inputs, parts, shares, 0, 0)
    return out


def heads_of_block(kv_heads: int) -> int:
    """KV heads that the warps of a block share among them: two where they come in pairs."""
    return 2 if kv_heads % 2 == 0 else 1


def instance(dtype: str, kv_dtype: str, head_dim: int, heads: int) -> str:
    """The kernel of these types, with its template arguments."""
    stored = f"Bytes<{BYTES[kv_dtype]}>" if kv_dtype in BYTES else f"Words<{FLOAT[kv_dtype]}>"
    return f"warp_decode_kernel<{FLOAT[dtype]}, {stored}, {head_dim}, {heads}>"


def _keys(kv_dtype: str, head_dim: int) -> int:
    """Keys that four warps take in one step: 16 a warp, and more where those are less than 4 KiB of K."""
    head = head_dim * (1 if kv_dtype in BYTES else 2)
    return 16 * WARPS * max(1, 256 // head)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
