"""FlashInfer's adapter: what is asked of FlashInfer for a cell, why FA3 is turned down, and the calls themselves where
FlashInfer is installed (its kernels stand still: they need a GPU)."""

import logging
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.matrix import expand, load
from kaudit.observation import Rejection, Said, Skipped
from kaudit_probes.engines import Heard
from kaudit_probes.engines.declined import Declined, declining
from kaudit_probes.engines.flashinfer import _DECLINES, FlashInfer, FlashInferCudaCores
from kaudit_probes.engines.flashinfer_inputs import Inputs
from kaudit_probes.engines.flashinfer_jit import Module, build, modules, spec
from kaudit_probes.engines.flashinfer_problem import Problem, problem_of
from kaudit_probes.engines.flashinfer_reasons import fa3_turned_down, unmet
from kaudit_probes.rows import path_shown

DECODE = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/none/plain/b2q1k100"
PREFILL = "prefill/bf16/kv-bf16/h32x8x128/paged16/causal/none/plain/b2q64k64"
CUSTOM = PREFILL.replace("causal", "custom")
FP8_KV = PREFILL.replace("kv-bf16", "kv-fp8_e4m3")
ROTATED = PREFILL.replace("/none/", "/neox/")


def problem(cell: str, cuda_cores: bool = False) -> Problem:
    found = problem_of(Cell.parse(cell), cuda_cores)
    assert isinstance(found, Problem), found
    return found


@pytest.mark.parametrize(
    ("cell", "entry"),
    [
        (DECODE, "decode"),
        (DECODE.replace("causal", "window32"), "decode"),
        (DECODE.replace("causal", "none"), "decode"),
        (DECODE.replace("b2q1", "b2q4"), "decode"),
        (DECODE.replace("b2q1", "b2q4").replace("causal", "none"), "paged"),
        (DECODE.replace("causal", "custom"), "paged"),
        (DECODE.replace("b2q1k100", "b8q8k32skew"), "paged"),
        (DECODE.replace("plain", "sinks"), "sink"),
        (PREFILL, "paged"),
        (PREFILL.replace("paged16", "ragged"), "ragged"),
        (PREFILL.replace("paged16", "contiguous").replace("b2", "b1"), "single_prefill"),
        (DECODE.replace("paged16", "contiguous").replace("b2", "b1"), "single_decode"),
        (DECODE.replace("paged16", "contiguous").replace("b2", "b1").replace("causal", "custom"), "single_prefill"),
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
        (DECODE.replace("x128/", "x128x64/"), "one head_dim"),
    ],
)
def test_what_cannot_be_said_to_flashinfer_is_skipped(cell: str, why: str) -> None:
    found = problem_of(Cell.parse(cell))
    assert isinstance(found, Skipped)
    assert why in found.reason


@pytest.mark.parametrize("cell", [PREFILL, DECODE.replace("causal", "custom"), DECODE.replace("b2q1", "b2q4")])
def test_cuda_cores_decode_single_tokens_only(cell: str) -> None:
    assert isinstance(problem_of(Cell.parse(cell), cuda_cores=True), Skipped)
    assert problem(DECODE, cuda_cores=True).entry == "decode"


def test_a_window_counts_its_own_key_and_flashinfers_does_not() -> None:
    assert problem(DECODE.replace("causal", "window32")).window_left == 31
    assert problem(DECODE).window_left == -1


@pytest.mark.parametrize(
    ("cell", "sm", "axes"),
    [
        (PREFILL, 90, []),
        (PREFILL.replace("causal", "window32"), 90, []),
        (PREFILL, 100, ["gpu"]),
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
    assert [reason.axis for reason in unmet(problem(cell), sm)] == axes


def test_what_the_mirrored_conditions_do_not_explain_is_not_explained_away() -> None:
    assert "none of the conditions" in str(fa3_turned_down(problem(PREFILL), 90).reasons)
    assert "first plan" in str(fa3_turned_down(problem(PREFILL), 90, reused=True).reasons)


def test_the_kernels_of_tensor_core_decode_bear_the_prefill_name() -> None:
    paths = (*FlashInfer.paths(bare())["attention"], *FlashInferCudaCores.paths(bare())["attention"])
    fa2 = "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<...>>"
    fa3 = "void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<...>>"
    cuda_cores = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>"
    merge = "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>"
    assert path_shown([fa2, merge], paths) == "flashinfer:fa2"
    assert path_shown([fa3], paths) == "flashinfer:fa3"
    assert path_shown([cuda_cores, merge], paths) == "flashinfer:cudacore_decode"


def bare() -> Any:
    """An engine that has looked at no GPU and no library."""
    return object.__new__(FlashInfer)


def test_an_absent_flashinfer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(UserError, match=r"not installed.*pip install flashinfer-python"):
        FlashInfer("cuda")
    monkeypatch.setitem(sys.modules, "flashinfer", ModuleType("flashinfer"))
    with pytest.raises(UserError, match="needs an NVIDIA GPU"):
        FlashInfer("cpu")


def test_the_cast_of_fp8_queries_is_announced() -> None:
    said = "Our current prefill kernel implementation needs f16 input, the f8 inputs  are casted to f16"
    records = [logging.makeLogRecord({"msg": text}) for text in ("JIT: loading", said, said)]
    heard = Heard(tuple(records), (), "")
    assert FlashInfer.announced(bare(), heard) == {
        "attention": (Rejection("flashinfer:fa3", "announced", (Said(said),)),)
    }
    assert FlashInfer.announced(bare(), Heard((), (), "")) == {}


def test_what_its_cpp_does_not_support_is_a_refusal_without_the_source_line() -> None:
    with pytest.raises(Declined, match=r"^Unsupported group_size: 7$"), declining(_DECLINES):
        raise RuntimeError("Error in function 'operator()' at /x/decode.cuh:771: Unsupported group_size: 7")
    with pytest.raises(RuntimeError, match="illegal memory access"), declining(_DECLINES):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_the_shipped_matrix_needs_few_jit_modules() -> None:
    """Each FA3 module is a minute and a half of compilation, each other a third of that."""
    plan = expand(load("flashinfer"))
    for pattern, cells, fa3, most in (("*/bf16/*", 150, 2, 11), ("*/fp16/*", 10, 3, 11)):
        part = plan.only(pattern).cells
        needed = modules(part, 90)
        assert len(part) >= cells
        assert sum(module.backend == "fa3" for module in needed) == fa3
        assert len(needed) <= most
    assert Module("quantization") in modules(plan.cells, 90)


class Still:
    """A JIT module whose kernels do nothing."""

    def nothing(self, *_: object) -> list[int]:
        return []

    plan = run = paged_run = ragged_run = packbits = segment_packbits = nothing


@pytest.fixture
def jit_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where FlashInfer, told that it is on an H200, writes its sources and builds."""
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
    pytest.importorskip("flashinfer")
    from flashinfer.jit import cpp_ext, env
    from packaging.version import Version

    monkeypatch.setattr(env, "FLASHINFER_JIT_DIR", tmp_path / "built")
    monkeypatch.setattr(env, "FLASHINFER_GEN_SRC_DIR", tmp_path / "generated")
    monkeypatch.setattr(cpp_ext, "get_cuda_version", lambda: Version("13.0"))
    monkeypatch.setattr(cpp_ext, "get_cuda_path", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, jit_dir: Path) -> set[str]:  # noqa: ARG001
    """FlashInfer as on an H200, without one: its compiled parts replaced, its own Python not. Says what it loads."""
    from flashinfer import decode, prefill, utils
    from flashinfer.jit.core import JitSpec

    empty, loaded = torch.empty, set[str]()

    def still(spec: Any) -> Still:
        loaded.add(spec.name)
        return Still()

    monkeypatch.setattr(JitSpec, "build_and_load", still)
    monkeypatch.setattr(torch, "empty", lambda *size, **options: empty(*size, **(options | {"pin_memory": False})))
    monkeypatch.setattr(utils, "is_sm90a_supported", lambda _: True)
    for module in (decode, prefill, sys.modules["flashinfer.quantization.packbits"]):
        for name, value in list(vars(module).items()):
            if hasattr(value, "cache_clear"):  # a loader, which would remember what stands still
                monkeypatch.setattr(module, name, value.__wrapped__)
    for module in (decode, prefill):
        monkeypatch.setattr(module, "device_support_pdl", lambda _: True)
        monkeypatch.setattr(module, "get_compute_capability", lambda _: (9, 0))
    return loaded


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (DECODE, {"attention": "fa2", "attention=prefill_wrapper": "fa3"}),
        (DECODE.replace("b2q1", "b2q4"), {"attention": "fa2", "attention=prefill_wrapper": "fa3"}),
        (DECODE.replace("plain", "sinks"), {"attention": "fa3"}),
        (PREFILL.replace("causal", "window32").replace("plain", "sinks"), {"attention": "fa3"}),
        (DECODE.replace("kv-bf16", "kv-fp8_e4m3"), {"attention": "fa2", "attention=prefill_wrapper": "fa2"}),
        (PREFILL, {"attention": "fa3", "attention=reused_wrapper": "fa2"}),
        (CUSTOM, {"attention": "fa2", "attention=reused_wrapper": "fa2"}),
        (FP8_KV, {"attention": "fa2", "attention=reused_wrapper": "fa2"}),
        (ROTATED, {"attention": "fa2", "attention=reused_wrapper": "fa2"}),
        (PREFILL.replace("paged16", "ragged"), {"attention": "fa3"}),
        (CUSTOM.replace("paged16", "ragged"), {"attention": "fa2"}),
        (PREFILL.replace("plain", "softcap"), {"attention": "fa3", "attention=reused_wrapper": "fa2"}),
        (PREFILL.replace("paged16", "contiguous").replace("b2", "b1"), {"attention": None}),
        (CUSTOM.replace("paged16", "contiguous").replace("b2", "b1"), {"attention": None}),
        (DECODE.replace("paged16", "contiguous").replace("b2", "b1"), {"attention": None}),
    ],
)
def test_flashinfers_own_dispatch_on_hopper(cell: str, words: dict[str, str | None]) -> None:
    from kaudit_probes.engines.flashinfer import _Call
    from kaudit_probes.engines.flashinfer_calls import planned

    inputs = Inputs(Cell.parse(cell), problem(cell), torch.zeros(1024, dtype=torch.uint8))
    calls = planned(inputs, cuda_cores=False)
    assert {op: call.word for op, call in calls.items()} == words
    call = _Call(calls, 90)
    call.run(nullcontext)  # type: ignore[arg-type]
    turned_down = {op for op, planned_call in calls.items() if (planned_call.word or planned_call.asked) == "fa2"}
    assert call.explain().keys() == turned_down
    assert "none of the conditions" not in str(call.explain())


@pytest.mark.usefixtures("hopper")
def test_cuda_core_decode_says_nothing_of_its_back_end() -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    inputs = Inputs(Cell.parse(DECODE), problem(DECODE, cuda_cores=True), torch.zeros(1024, dtype=torch.uint8))
    (call,) = planned(inputs, cuda_cores=True).values()
    assert (call.word, call.asked) == (None, None)


@pytest.mark.parametrize("pattern", ["*/bf16/*", "*/fp16/*"])
def test_what_is_built_before_a_sweep_is_what_its_calls_load(hopper: set[str], pattern: str) -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    cells = expand(load("flashinfer")).only(pattern).cells
    each = {(problem_of(cell, cuda_cores), cuda_cores): cell for cell in cells for cuda_cores in (False, True)}
    for (asked, cuda_cores), cell in each.items():
        if isinstance(asked, Problem):
            few = replace(cell.shape, batch=min(cell.shape.batch, 2), q_len=min(cell.shape.q_len, 4), kv_len=64)
            inputs = Inputs(replace(cell, shape=few), asked, torch.zeros(1024, dtype=torch.uint8))
            for call in planned(inputs, cuda_cores).values():
                call.run()
    assert {name for name in hopper if "sink" not in name} == {spec(module).name for module in modules(cells, 90)}


@pytest.mark.skipif(shutil.which("ninja") is None, reason="FlashInfer builds with ninja")
def test_what_is_built_is_not_built_again(jit_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, log = jit_dir / "compiler", jit_dir / "compiled"
    writes = 'while [ $# -gt 0 ]; do case $1 in -o|-MF) : > "$2";; esac; shift; done'
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{writes}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("FLASHINFER_NVCC", str(compiler))
    monkeypatch.setenv("CXX", str(compiler))
    specs = [spec(module) for module in modules(expand(load("flashinfer")).only("decode/bf16/*").cells, 90)]
    build(specs)
    compiled = log.read_text()
    for built in specs:
        assert built.name in compiled
        built.build()  # as a plan does that asks for the module
    assert log.read_text() == compiled
