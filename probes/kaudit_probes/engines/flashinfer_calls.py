"""FlashInfer's entry points, planned for a cell and ready to run. A new wrapper for each call: its `auto` is sticky."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import flashinfer
import torch
from flashinfer.attention import BatchAttentionWithAttentionSinkWrapper
from flashinfer.utils import PosEncodingMode, determine_attention_backend

from kaudit_probes.engines.flashinfer_inputs import Inputs
from kaudit_probes.engines.flashinfer_problem import Planned, Problem, word

_LAYOUT = "NHD"


def planned(inputs: Inputs) -> dict[str, Planned]:
    """The call of each op. Ops that share the name before `=` are equal calls: FlashInfer should serve them alike."""
    auto = inputs.problem.backend == "auto"
    match inputs.problem.entry:
        case "single_decode":
            return {"attention": _single_decode(inputs)}
        case "single_prefill":
            return {"attention": _single_prefill(inputs)}
        case "ragged":
            return {"attention": _ragged(inputs)}
        case "sink":
            return {"attention": _sink(inputs)}
        case "decode" if auto:
            return {"attention": _decode(inputs), "attention=prefill_wrapper": _paged(inputs)}
        case "decode":
            return {"attention": _decode(inputs)}
        case "paged" if auto and inputs.problem.q_dtype.itemsize > 1:
            # No kernel takes both an fp8 query and a custom mask: there is no earlier plan of these to keep.
            return {"attention": _paged(inputs), "attention=reused_wrapper": _paged(inputs, reused=True)}
        case "paged":
            return {"attention": _paged(inputs)}


def _decode(inputs: Inputs) -> Planned:
    tensor_cores = inputs.problem.backend != "cuda_cores"
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        inputs.workspace, _LAYOUT, use_tensor_cores=tensor_cores, backend=inputs.problem.named
    )
    heads, pages = inputs.cell.heads, inputs.pages
    wrapper.plan(
        pages.starts,
        pages.indices,
        pages.last_lens,
        heads.q,
        heads.kv,
        heads.dim,
        inputs.cell.layout.page,
        q_len_per_req=inputs.cell.shape.q_len,
        **options(inputs.problem),
    )
    run = partial(wrapper.run, inputs.q, inputs.paged_kv, out=inputs.out)
    return Planned(inputs.problem, run, word(wrapper) if tensor_cores else None)


def _paged(inputs: Inputs, reused: bool = False) -> Planned:
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(inputs.workspace, _LAYOUT, backend=inputs.problem.named)
    if reused:
        _plan_one_custom_token(wrapper, inputs)
    _plan_paged(wrapper, inputs, inputs.custom_mask)
    run = partial(wrapper.run, inputs.q, inputs.paged_kv, out=inputs.out)
    return Planned(replace(inputs.problem, entry="paged"), run, word(wrapper), reused=reused)


def _sink(inputs: Inputs) -> Planned:
    problem, heads = inputs.problem, inputs.cell.heads
    wrapper = BatchAttentionWithAttentionSinkWrapper(
        inputs.workspace,
        _LAYOUT,
        backend=problem.named,
        pos_encoding_mode=problem.pos_encoding,
        q_data_type=problem.q_dtype,
        kv_data_type=problem.kv_dtype,
        head_dim_qk=heads.dim,
        head_dim_vo=heads.v_dim,
        window_left=problem.window_left,
    )
    _plan_paged(wrapper, inputs, None)
    # The arguments of the JIT variant: its sinks and its scale.
    variant = inputs.sinks, 1 / math.sqrt(heads.dim)
    run = partial(wrapper.run, inputs.q, inputs.paged_kv, *variant, out=inputs.out)
    return Planned(problem, run, word(wrapper))


def _plan_paged(wrapper: Any, inputs: Inputs, custom_mask: torch.Tensor | None) -> None:
    heads, pages = inputs.cell.heads, inputs.pages
    wrapper.plan(
        inputs.q_starts,
        pages.starts,
        pages.indices,
        pages.last_lens,
        heads.q,
        heads.kv,
        heads.dim,
        inputs.cell.layout.page,
        head_dim_vo=heads.v_dim,
        causal=inputs.problem.causal,
        custom_mask=custom_mask,
        **options(inputs.problem),
    )


def _plan_one_custom_token(wrapper: Any, inputs: Inputs) -> None:
    """Plan for one request of one token under a custom mask, which FA3 has no kernel for.

    This order and no other: an FA3 wrapper that is then given a custom mask raises, one on FA2 just stays there.
    """
    heads, problem = inputs.cell.heads, inputs.problem
    one = torch.ones(1, dtype=torch.int32)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    wrapper.plan(
        starts,
        starts,
        one - 1,
        one,
        heads.q,
        heads.kv,
        heads.dim,
        inputs.cell.layout.page,
        head_dim_vo=heads.v_dim,
        custom_mask=torch.ones(1, dtype=torch.bool, device=inputs.workspace.device),
        q_data_type=problem.q_dtype,
        kv_data_type=problem.kv_dtype,
        o_data_type=problem.o_dtype,
    )


def _ragged(inputs: Inputs) -> Planned:
    heads, problem = inputs.cell.heads, inputs.problem
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(inputs.workspace, _LAYOUT, backend=problem.named)
    wrapper.plan(
        inputs.q_starts,
        inputs.kv_starts,
        heads.q,
        heads.kv,
        heads.dim,
        head_dim_vo=heads.v_dim,
        causal=problem.causal,
        custom_mask=inputs.custom_mask,
        **options(problem),
    )
    run = partial(wrapper.run, inputs.q, *inputs.packed_kv, out=inputs.out)
    return Planned(problem, run, word(wrapper))


def _single_prefill(inputs: Inputs) -> Planned:
    problem, mask = inputs.problem, inputs.custom_mask
    run = partial(
        flashinfer.single_prefill_with_kv_cache,
        inputs.q,
        *inputs.packed_kv,
        o_dtype=problem.o_dtype,
        custom_mask=None if mask is None else mask.view(inputs.q_lens[0], inputs.kv_lens[0]),
        causal=problem.causal,
        kv_layout=_LAYOUT,
        pos_encoding_mode=problem.pos_encoding,
        window_left=problem.window_left,
        logits_soft_cap=problem.softcap,
        backend=problem.named,
    )
    if problem.backend != "auto":
        return Planned(problem, run)
    asked = determine_attention_backend(
        inputs.q.device,
        PosEncodingMode[problem.pos_encoding].value,
        False,  # use_fp16_qk_reduction
        problem.custom_mask,
        problem.q_dtype,
        problem.kv_dtype,
        head_dim_qk=problem.head_dim,
        head_dim_vo=problem.v_head_dim,
    )
    return Planned(problem, run, asked=asked)


def _single_decode(inputs: Inputs) -> Planned:
    problem = inputs.problem
    run = partial(
        flashinfer.single_decode_with_kv_cache,
        inputs.q[0],
        *inputs.packed_kv,
        kv_layout=_LAYOUT,
        pos_encoding_mode=problem.pos_encoding,
        use_tensor_cores=problem.backend != "cuda_cores",
        window_left=problem.window_left,
        logits_soft_cap=problem.softcap,
    )
    return Planned(problem, run)


def options(problem: Problem) -> dict[str, Any]:
    """What plan() of each wrapper takes alike, by keyword."""
    return {
        "window_left": problem.window_left,
        "logits_soft_cap": problem.softcap,
        "pos_encoding_mode": problem.pos_encoding,
        "q_data_type": problem.q_dtype,
        "kv_data_type": problem.kv_dtype,
        "o_data_type": problem.o_dtype,
    }
