"""What FlashInfer is asked for a cell: which of its entry points, with which plan arguments. Imports no FlashInfer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kaudit.cell import Cell
from kaudit.observation import Skipped
from kaudit_probes.engines.batches import DTYPES, SOFTCAP

Entry = Literal["decode", "paged", "ragged", "sink", "single_decode", "single_prefill"]
"""BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper,
BatchAttentionWithAttentionSinkWrapper, single_decode_with_kv_cache, single_prefill_with_kv_cache."""

Backend = Literal["auto", "cuda_cores", "fa2", "fa3"]
"""What FlashInfer is asked for: its own choice, by tensor cores or (`cuda_cores`) without, or one kernel by name."""


@dataclass(frozen=True)
class Problem:
    """The arguments on which FlashInfer's choice and its JIT modules depend."""

    entry: Entry
    q_dtype: torch.dtype
    kv_dtype: torch.dtype
    o_dtype: torch.dtype
    head_dim: int
    v_head_dim: int
    causal: bool
    custom_mask: bool
    window_left: int
    """Keys left of a query's own that it sees, -1 for all: one less than kaudit's window, which counts its own key."""
    softcap: float
    pos_encoding: Literal["NONE", "ROPE_LLAMA"]
    backend: Backend

    @property
    def named(self) -> str:
        """The `backend` of FlashInfer's signatures."""
        return "auto" if self.backend == "cuda_cores" else self.backend


@dataclass(frozen=True)
class Planned:
    """A call whose plan is made, as an engine makes it once per step for all of its layers."""

    problem: Problem
    run: Callable[[], object]
    word: str | None = None
    """The back end that the wrapper says it took. The functions of one request and CUDA-core decode say nothing."""
    asked: str | None = None
    """The back end that FlashInfer's predicate answers when asked for it, where there is no word."""
    reused: bool = False
    """Whether the wrapper was planned for another problem before."""


FA3_HEAD_DIMS = ((64, 64), (128, 128), (256, 256), (192, 128))
"""Of K and V."""


def word(wrapper: Any) -> str:
    """The back end that a wrapper took. All but the decode wrapper have a private field alone."""
    return str(getattr(wrapper, "resolved_backend", wrapper._backend))


def problem_of(cell: Cell, backend: Backend = "auto") -> Problem | Skipped:
    why = _inexpressible(cell) or _not_by(backend, cell)
    if why is not None:
        return Skipped(why)
    dtype = DTYPES[cell.dtype]
    return Problem(
        _entry(cell),
        dtype,
        DTYPES[cell.kv_dtype],
        torch.bfloat16 if dtype.itemsize == 1 else dtype,
        cell.heads.dim,
        cell.heads.v_dim,
        cell.mask.kind in ("causal", "window"),
        cell.mask.kind in ("custom", "tree"),
        cell.mask.window - 1 if cell.mask.kind == "window" else -1,
        SOFTCAP if "softcap" in cell.features else 0.0,
        "NONE" if cell.rope.style == "none" else "ROPE_LLAMA",
        backend,
    )


def _entry(cell: Cell) -> Entry:
    one_token = cell.phase == "decode" and cell.shape.q_len == 1
    if "sinks" in cell.features:
        return "sink"
    match cell.layout.kind:
        case "contiguous":
            # single_decode takes neither mask, and one token needs no causal one.
            return "single_decode" if one_token and cell.mask.kind not in ("custom", "tree") else "single_prefill"
        case "ragged":
            return "ragged"
    # The decode wrapper derives its mask: none for one token, causal for more. It refuses to be told another.
    derived = cell.mask.kind in ("causal", "window") or (cell.mask.kind == "none" and one_token)
    return "decode" if cell.phase == "decode" and derived and not _short(cell) else "paged"


def _short(cell: Cell) -> bool:
    """Whether some request has fewer KV tokens than the decode wrapper's one q_len for all."""
    shape = cell.shape
    return shape.skew and shape.kv_len // shape.batch < shape.q_len


def _inexpressible(cell: Cell) -> str | None:
    match cell.features:
        case features if "grammar" in features:
            return "grammar masks logits, not attention: FlashInfer's attention has no such op"
        case features if "prefix_share" in features:
            return "FlashInfer shares prefixes through its cascade wrapper, which this adapter does not drive"
        case features if "cuda_graph" in features:
            return "this adapter does not capture CUDA graphs of FlashInfer's wrappers"
        case features if "sinks" in features and cell.layout.kind != "paged":
            return "FlashInfer's attention-sink wrapper takes paged KV only"
        case features if "sinks" in features and {"softcap"} & set(features):
            return "FlashInfer's attention-sink variant caps no logits"
        case features if "sinks" in features and cell.mask.kind in ("custom", "tree"):
            return "this adapter gives FlashInfer's attention-sink wrapper no custom mask"
    if unknown := set(cell.features) - {"softcap", "sinks", "speculative_tree"}:
        return f"this adapter gives FlashInfer nothing that is {' and '.join(sorted(unknown))}"
    if cell.dtype == "fp32":
        return "FlashInfer generates its attention for fp16, bf16 and fp8 queries: no fp32 in its JIT's type names"
    if cell.kv_dtype == "int8":
        return "FlashInfer's wrappers document no int8 KV"
    if cell.rope.style == "interleaved" or cell.rope.scaling != "none" or cell.rope.offset:
        return (
            f"FlashInfer's attention rotates as neox, unscaled and from 0 only, not {cell.rope}: its rope module does"
        )
    if cell.layout.kind == "contiguous" and cell.shape.batch > 1:
        return "contiguous KV is for FlashInfer's single_prefill and single_decode, of one request"
    if DTYPES[cell.dtype].itemsize == 1 and "softcap" in cell.features:
        return "FlashInfer's kernels for fp8 queries cap no logits, and do not say so"
    entry = _entry(cell)
    if entry in ("decode", "single_decode") and cell.heads.v_dim != cell.heads.dim:
        # single_decode does not look: its output has K's head dim, and it reads V past its rows.
        return f"FlashInfer's {entry} has one head_dim for K and V"
    if entry == "single_prefill" and DTYPES[cell.dtype].itemsize == 1 and (why := _not_fp8(cell)):
        return f"FlashInfer's single_prefill asserts, without a word, that an fp8 query has {why}"
    return None


def _not_fp8(cell: Cell) -> str | None:
    """What single_prefill asserts of an fp8 query that the cell has not."""
    if cell.mask.kind == "window":
        return "no window"
    if cell.kv_dtype != cell.dtype:
        return f"K and V of its own dtype, not {cell.kv_dtype}"
    if cell.heads.v_dim != cell.heads.dim:
        return "one head_dim for K and V"
    return None


def _not_by(backend: Backend, cell: Cell) -> str | None:
    """What the back end cannot be asked for, where FlashInfer would not say so."""
    match backend:
        case "cuda_cores":
            return _cuda_cores_need(cell)
        case "fa2" | "fa3" if _entry(cell) == "single_decode":
            return "FlashInfer's single_decode takes no back end"
        case "fa3":
            return _fa3_needs(cell)
    return None


def _fa3_needs(cell: Cell) -> str | None:
    """What FlashInfer 0.7.2 looks at for its own choice alone.

    FA3 by name does not compile (nvcc 13.0: "No eligible GMMA operator for request configuration", an assertion of
    head dims) or does not rotate: the sources generated for ROPE_LLAMA have the bytes of those for NONE.
    """
    if cell.rope.style != "none":
        return "FlashInfer's FA3 rotates nothing, and does not say so"
    if DTYPES[cell.kv_dtype].itemsize < DTYPES[cell.dtype].itemsize:
        return f"FlashInfer's FA3 does not compile for {cell.dtype} over {cell.kv_dtype} KV, and does not say so"
    if (cell.heads.dim, cell.heads.v_dim) not in FA3_HEAD_DIMS:
        return f"FlashInfer's FA3 does not compile for {cell.heads}, and does not say so"
    return None


def _cuda_cores_need(cell: Cell) -> str | None:
    if cell.phase != "decode" or cell.shape.q_len != 1 or cell.layout.kind == "ragged":
        return "FlashInfer's CUDA-core kernels decode one token per request over paged or contiguous KV"
    if cell.mask.kind in ("custom", "tree") or "sinks" in cell.features:
        return "FlashInfer's CUDA-core decode takes neither a custom mask nor sinks"
    return None
