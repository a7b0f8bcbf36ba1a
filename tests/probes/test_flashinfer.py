"""FlashInfer's adapter: what is asked of FlashInfer for a cell, why FA3 is turned down, what is a refusal."""

import logging
import sys
from types import ModuleType
from typing import Any, get_args

import pytest
from flashinfer_for_tests import CUSTOM, DECODE, FP8_KV, PREFILL, ROTATED, problem

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.matrix import expand, load
from kaudit.observation import Kernel, Rejection, Said, Skipped
from kaudit_probes.engines import Heard
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.flashinfer import FlashInfer, FlashInferCudaCores, saying_no
from kaudit_probes.engines.flashinfer_jit import Module, modules
from kaudit_probes.engines.flashinfer_problem import Backend, Entry, Planned, Problem, problem_of
from kaudit_probes.engines.flashinfer_reasons import turned_down, unmet
from kaudit_probes.rows import Words, path_shown, ran

SINGLE_DECODE = DECODE.replace("paged16", "contiguous").replace("b2", "b1")
FP8_QUERY = PREFILL.replace("bf16", "fp8_e4m3")
FP8_SINGLE = FP8_QUERY.replace("paged16", "contiguous").replace("b2", "b1")

FAILED = "Check failed: (status == cudaSuccess)"
UNSUPPORTED = "failed with error: operation not supported"


@pytest.mark.parametrize(
    ("cell", "entry"),
    [
        (DECODE, "decode"),
        (DECODE.replace("causal", "window32"), "decode"),
        (DECODE.replace("causal", "none"), "decode"),
        (DECODE.replace("b2q1", "b2q4"), "decode"),
        (DECODE.replace("b2q1", "b2q4").replace("causal", "none"), "paged"),
        (DECODE.replace("causal", "custom"), "paged"),
        (DECODE.replace("causal", "custom").replace("x128/", "x192x128/"), "paged"),
        (DECODE.replace("b2q1k100", "b8q8k32skew"), "paged"),
        (DECODE.replace("plain", "sinks"), "sink"),
        (PREFILL, "paged"),
        (PREFILL.replace("paged16", "ragged"), "ragged"),
        (PREFILL.replace("paged16", "contiguous").replace("b2", "b1"), "single_prefill"),
        (SINGLE_DECODE, "single_decode"),
        (SINGLE_DECODE.replace("causal", "custom"), "single_prefill"),
    ],
)
def test_each_cell_has_its_entry_point(cell: str, entry: str) -> None:
    assert problem(cell).entry == entry


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (DECODE.replace("plain", "grammar"), "masks logits"),
        (DECODE.replace("plain", "prefix_share"), "cascade"),
        (DECODE.replace("plain", "cuda_graph"), "CUDA graphs"),
        (DECODE.replace("plain", "sinks+softcap"), "caps no logits"),
        (PREFILL.replace("plain", "sinks").replace("paged16", "ragged"), "paged KV only"),
        (CUSTOM.replace("plain", "sinks"), "no custom mask"),
        (PREFILL.replace("bf16", "fp32"), "no fp32"),
        (PREFILL.replace("kv-bf16", "kv-int8"), "no int8"),
        (PREFILL.replace("/none/", "/interleaved/"), "neox, unscaled"),
        (PREFILL.replace("/none/", "/neox@5/"), "neox, unscaled"),
        (PREFILL.replace("paged16", "contiguous"), "one request"),
        (DECODE.replace("x128/", "x128x64/"), "decode has one head_dim"),
        (SINGLE_DECODE.replace("x128/", "x192x128/"), "single_decode has one head_dim"),
        (FP8_QUERY.replace("plain", "softcap"), "cap no logits"),
        (FP8_SINGLE.replace("causal", "window32"), "has no window"),
        (FP8_SINGLE.replace("kv-fp8_e4m3", "kv-fp8_e5m2"), "its own dtype, not fp8_e5m2"),
        (FP8_SINGLE.replace("x128/", "x192x128/"), "has one head_dim"),
    ],
)
def test_what_cannot_be_said_to_flashinfer_is_skipped(cell: str, why: str) -> None:
    found = problem_of(Cell.parse(cell))
    assert isinstance(found, Skipped)
    assert why in found.reason


def test_what_single_prefill_asserts_of_an_fp8_query_is_asked_of_no_other() -> None:
    assert problem(FP8_SINGLE).entry == "single_prefill"
    assert problem(FP8_SINGLE.replace("fp8_e4m3", "fp16").replace("causal", "window32")).window_left == 31
    assert problem(FP8_QUERY.replace("causal", "window32")).entry == "paged"


@pytest.mark.parametrize("cell", [PREFILL, DECODE.replace("causal", "custom"), DECODE.replace("b2q1", "b2q4")])
def test_cuda_cores_decode_single_tokens_only(cell: str) -> None:
    assert isinstance(problem_of(Cell.parse(cell), "cuda_cores"), Skipped)
    assert problem(DECODE, "cuda_cores").entry == "decode"


def test_a_window_counts_its_own_key_and_flashinfers_does_not() -> None:
    assert problem(DECODE.replace("causal", "window32")).window_left == 31
    assert problem(DECODE).window_left == -1


@pytest.mark.parametrize(
    ("cell", "sm", "axes"),
    [
        (PREFILL, 90, []),
        (PREFILL.replace("causal", "window32"), 90, []),
        (PREFILL, 120, ["gpu"]),
        (CUSTOM, 90, ["mask"]),
        (ROTATED, 90, ["pos_encoding_mode"]),
        (FP8_KV, 90, ["kv_dtype"]),
        (PREFILL.replace("bf16", "fp8_e4m3"), 90, []),
        (PREFILL.replace("x128/", "x96/"), 90, ["head_dim"]),
        (PREFILL.replace("x128/", "x192x128/"), 90, []),
        (DECODE, 90, ["wrapper"]),
        (DECODE.replace("kv-bf16", "kv-fp8_e4m3"), 90, ["kv_dtype"]),
        (FP8_KV.replace("causal", "custom"), 80, ["gpu", "mask", "kv_dtype"]),
    ],
)
def test_every_condition_that_fa3_does_not_meet_is_a_reason(cell: str, sm: int, axes: list[str]) -> None:
    reasons = list(unmet(problem(cell), sm))
    assert [reason.axis for reason in reasons] == axes
    assert all(str(reason).startswith("kaudit: ") for reason in reasons)  # FlashInfer says none of it


def call(cell: str, backend: Backend = "auto", **said: Any) -> Planned:
    return Planned(problem(cell, backend), lambda: None, **said)


def test_what_the_mirrored_conditions_do_not_explain_is_not_explained_away() -> None:
    assert "none of the conditions" in str(turned_down(call(PREFILL, asked="fa2"), 90))
    assert "first plan" in str(turned_down(call(PREFILL, word="fa2", reused=True), 90))
    assert turned_down(call(PREFILL, word="fa3"), 90) == ()


@pytest.mark.parametrize(
    ("kernel", "path", "remark"),
    [
        ("void flashinfer::SinglePrefillWithKVCacheKernel<flashinfer::KernelTraits<", "flashinfer:fa2", False),
        ("void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<", "flashinfer:fa3", True),
    ],
)
def test_of_a_function_that_says_nothing_the_kernels_say_whether_fa3_was_turned_down(
    kernel: str, path: str, remark: bool
) -> None:
    paths, asked = bare().paths()["attention"], {"attention": turned_down(call(SINGLE_DECODE), 90)}
    kernels = (Kernel(kernel, "flashinfer", "attention", 1),)
    found = ran(Cell.parse(SINGLE_DECODE), "attention", kernels, paths, Words({}, {}, asked))
    (about_fa3,) = found.rejections
    assert (found.path, about_fa3.path) == (path, "flashinfer:fa3")
    assert "single_decode_with_kv_cache" in str(about_fa3.reasons[0])
    assert ("its kernels ran all the same" in str(about_fa3.reasons)) == remark


def test_nothing_is_turned_down_where_flashinfer_does_not_choose() -> None:
    assert turned_down(call(DECODE, word="fa2"), 90)
    assert turned_down(call(DECODE, "fa2", word="fa2"), 90) == ()
    assert turned_down(call(SINGLE_DECODE, "cuda_cores"), 90) == ()


def test_the_kernels_of_tensor_core_decode_bear_the_prefill_name() -> None:
    paths = (*bare().paths()["attention"], *bare(FlashInferCudaCores).paths()["attention"])
    fa2 = "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<...>>"
    fa3 = "void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<...>>"
    cuda_cores = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>"
    merge = "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>"
    assert path_shown([fa2, merge], paths) == "flashinfer:fa2"
    assert path_shown([fa3], paths) == "flashinfer:fa3"
    assert path_shown([cuda_cores, merge], paths) == "flashinfer:cudacore_decode"


def bare(engine: type[FlashInfer] = FlashInfer) -> FlashInfer:
    """An engine that has looked at no GPU and no library."""
    return object.__new__(engine)


def test_an_absent_flashinfer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(UserError, match=r"(not installed|does not import).*pip install flashinfer-python"):
        FlashInfer("cuda")
    monkeypatch.setitem(sys.modules, "flashinfer", ModuleType("flashinfer"))
    with pytest.raises(UserError, match="needs an NVIDIA GPU"):
        FlashInfer("cpu")


def test_the_cast_of_fp8_queries_is_announced() -> None:
    said = "Our current prefill kernel implementation needs f16 input, the f8 inputs  are casted to f16"
    records = [logging.makeLogRecord({"msg": text}) for text in ("JIT: loading", said, said)]
    heard = Heard(tuple(records), (), "")
    assert bare().announced(heard) == {"attention": (Rejection("flashinfer:fa3", "announced", (Said(said),)),)}
    assert bare().announced(Heard((), (), "")) == {}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("Error in function 'operator()' at /x/decode.cuh:771: Unsupported group_size: 7"),
            "Unsupported group_size: 7",
        ),
        (
            NotImplementedError("q_len_per_req > 1 is currently only supported on the fa2 tensor-core backend."),
            "q_len_per_req > 1 is currently only supported on the fa2 tensor-core backend.",
        ),
        (
            ValueError("fixed_split_size is only supported by tensor core decode for now."),
            "fixed_split_size is only supported by tensor core decode for now.",
        ),
        (
            AssertionError("fp8 tensor core is not supported in fa2 backend"),
            "fp8 tensor core is not supported in fa2 backend",
        ),
        (
            AssertionError("FP8 output is not supported in fa2/fa3 backends yet"),
            "FP8 output is not supported in fa2/fa3 backends yet",
        ),
        (
            RuntimeError(f"{FAILED} is false: BatchPrefillWithPagedKVCacheSM90Run {UNSUPPORTED}"),
            f"BatchPrefillWithPagedKVCacheSM90Run {UNSUPPORTED}",
        ),
        (
            RuntimeError(f"{FAILED} is false: single_prefill_with_kv_cache_sm90 {UNSUPPORTED}"),
            f"single_prefill_with_kv_cache_sm90 {UNSUPPORTED}",
        ),
    ],
)
def test_what_flashinfer_does_not_take_is_a_refusal_without_the_source_line(error: Exception, said: str) -> None:
    assert FlashInfer.refusals == (Declined,)
    with pytest.raises(Declined) as caught, saying_no():
        raise error
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError(f"{FAILED}: BatchPrefill failed with error operation not supported"),
        RuntimeError(f"{FAILED} is false: PrefillSM90Plan {UNSUPPORTED}"),
        RuntimeError(f"{FAILED} is false: BatchPrefillWithPagedKVCacheSM90Run failed with error: invalid argument"),
        AssertionError(),
        AssertionError("cached module is not initialized"),
        # Mistakes of a caller, and of this adapter.
        ValueError("The length of qo_indptr and paged_kv_indptr should be the same."),
        ValueError("q.shape[0] (3) does not match qo_indptr[-1] (4)."),
        ValueError("not enough values to unpack (expected 3, got 2)"),
        NotImplementedError("\"normal_kernel_cuda\" not implemented for 'Float8_e4m3fn'"),
    ],
)
def test_a_mistake_is_no_refusal(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, saying_no():
        raise error
    assert caught.value is error


def test_the_shipped_matrix_needs_few_jit_modules() -> None:
    """Each FA3 module is a minute and a half of compilation, each other a third of that."""
    plan = expand(load("flashinfer"))
    for pattern, cells, fa3, most in (("*/bf16/*", 150, 2, 11), ("*/fp16/*", 10, 4, 15)):
        part = plan.only(pattern).cells
        needed = modules(part, 90, ("auto", "cuda_cores"))
        assert len(part) >= cells
        assert sum(module.backend == "fa3" for module in needed) == fa3
        assert len(needed) <= most
    assert Module("quantization") in modules(plan.cells, 90, ("auto",))


@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_a_back_end_by_name_takes_of_bf16_the_modules_that_auto_needs_and_no_other(backend: Backend) -> None:
    cells = expand(load("flashinfer")).only("*/bf16/*").cells
    named = set(modules(cells, 90, (backend,)))
    assert named <= set(modules(cells, 90, ("auto",)))
    assert {module.backend for module in named} == {backend, ""}


def test_the_shipped_matrix_asks_for_every_entry_point() -> None:
    cells = expand(load("flashinfer")).cells
    for backend, entries in (("auto", set(get_args(Entry))), ("cuda_cores", {"decode", "single_decode"})):
        found = [problem_of(cell, backend) for cell in cells]
        assert {asked.entry for asked in found if isinstance(asked, Problem)} == entries
