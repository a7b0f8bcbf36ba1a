"""What FlashInfer is asked for by each of its engines. A stand-in takes its place: none of this needs it installed."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from flashinfer_for_tests import CUSTOM, DECODE, FP8_KV, PREFILL, ROTATED, problem

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Kernel, Skipped, is_silent_fallback
from kaudit_probes.engines import ENGINES, flashinfer_jit, load
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.flashinfer import (
    BACKENDS,
    FlashInfer,
    FlashInferCudaCores,
    FlashInferFa2,
    FlashInferFa3,
    _Call,
)
from kaudit_probes.engines.flashinfer_inputs import Inputs
from kaudit_probes.engines.flashinfer_problem import Backend, Planned, problem_of, word
from kaudit_probes.rows import Words, ran

SINGLE_PREFILL = PREFILL.replace("paged16", "contiguous").replace("b2", "b1")
SINGLE_DECODE = DECODE.replace("paged16", "contiguous").replace("b2", "b1")
RAGGED = PREFILL.replace("paged16", "ragged")
SINK = DECODE.replace("plain", "sinks")

PAGED = "BatchPrefillWithPagedKVCacheWrapper"
DECODES = "BatchDecodeWithPagedKVCacheWrapper"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Backend], list[tuple[str, str, bool | None]]]:
    """For a cell and a back end, what FlashInfer is called with: wrapper or function, back end, tensor cores."""
    heard: list[tuple[str, str, bool | None]] = []

    class Wrapper:
        def __init__(self, *_: object, backend: str, use_tensor_cores: bool | None = None, **__: object) -> None:
            heard.append((type(self).__name__, backend, use_tensor_cores))
            self._backend = "fa2" if backend == "auto" else backend

        def plan(self, *_: object, **__: object) -> None: ...

        run = plan

    def function(name: str) -> Callable[..., None]:
        return lambda *_, backend="", use_tensor_cores=None, **__: heard.append((name, backend, use_tensor_cores))

    stand_in: Any = ModuleType("flashinfer")
    stand_in.attention, stand_in.utils = ModuleType("flashinfer.attention"), ModuleType("flashinfer.utils")
    for name in (DECODES, PAGED, "BatchPrefillWithRaggedKVCacheWrapper"):
        setattr(stand_in, name, type(name, (Wrapper,), {}))
    name = "BatchAttentionWithAttentionSinkWrapper"
    setattr(stand_in.attention, name, type(name, (Wrapper,), {}))
    for name in ("single_prefill_with_kv_cache", "single_decode_with_kv_cache"):
        setattr(stand_in, name, function(name))
    stand_in.utils.PosEncodingMode = {"NONE": SimpleNamespace(value=0)}
    stand_in.utils.determine_attention_backend = lambda *_, **__: "fa3"
    for name, module in (("", stand_in), (".attention", stand_in.attention), (".utils", stand_in.utils)):
        monkeypatch.setitem(sys.modules, f"flashinfer{name}", module)
    spec = find_spec("kaudit_probes.engines.flashinfer_calls")  # not imported: it would keep the stand-in
    assert spec is not None
    assert spec.loader is not None
    calls = module_from_spec(spec)
    spec.loader.exec_module(calls)

    def of(cell: str, backend: Backend) -> list[tuple[str, str, bool | None]]:
        inputs = Inputs(Cell.parse(cell), problem(cell, backend), torch.zeros(64, dtype=torch.uint8))
        planned = calls.planned(inputs)
        for call in planned.values():
            call.run()
            assert call.asked == ("fa3" if (cell, backend) == (SINGLE_PREFILL, "auto") else None)
            wraps = "single" not in call.problem.entry and backend != "cuda_cores"
            assert call.word == ((backend if backend != "auto" else "fa2") if wraps else None)
        assert next(iter(planned)) == "attention"
        return heard

    return of


@pytest.mark.parametrize(
    ("cell", "backend", "calls"),
    [
        (DECODE, "auto", [(DECODES, "auto", True), (PAGED, "auto", None)]),
        (DECODE, "cuda_cores", [(DECODES, "auto", False)]),
        (DECODE, "fa2", [(DECODES, "fa2", True)]),
        (DECODE, "fa3", [(DECODES, "fa3", True)]),
        (PREFILL, "auto", [(PAGED, "auto", None)] * 2),
        (PREFILL, "fa2", [(PAGED, "fa2", None)]),
        (CUSTOM, "fa3", [(PAGED, "fa3", None)]),
        (RAGGED, "auto", [("BatchPrefillWithRaggedKVCacheWrapper", "auto", None)]),
        (RAGGED, "fa3", [("BatchPrefillWithRaggedKVCacheWrapper", "fa3", None)]),
        (SINK, "auto", [("BatchAttentionWithAttentionSinkWrapper", "auto", None)]),
        (SINK, "fa2", [("BatchAttentionWithAttentionSinkWrapper", "fa2", None)]),
        (SINGLE_PREFILL, "auto", [("single_prefill_with_kv_cache", "auto", None)]),
        (SINGLE_PREFILL, "fa3", [("single_prefill_with_kv_cache", "fa3", None)]),
        (SINGLE_DECODE, "auto", [("single_decode_with_kv_cache", "", True)]),
        (SINGLE_DECODE, "cuda_cores", [("single_decode_with_kv_cache", "", False)]),
    ],
)
def test_each_entry_point_is_asked_for_the_engine_s_back_end(
    asked: Callable[[str, Backend], object], cell: str, backend: Backend, calls: list[tuple[str, str, bool | None]]
) -> None:
    assert asked(cell, backend) == calls


@pytest.mark.parametrize(
    ("cell", "backend", "why"),
    [
        (SINGLE_DECODE, "fa2", "takes no back end"),
        (SINGLE_DECODE, "fa3", "takes no back end"),
        (ROTATED, "fa3", "rotates nothing"),
        (FP8_KV, "fa3", "does not compile for bf16 over fp8_e4m3 KV"),
        (PREFILL.replace("x128/", "x96/"), "fa3", "does not compile for h32x8x96"),
        (PREFILL.replace("bf16", "fp32"), "cuda_cores", "no fp32"),  # what no back end takes comes first
    ],
)
def test_what_a_back_end_would_get_wrong_without_a_word_is_not_asked_of_it(
    cell: str, backend: Backend, why: str
) -> None:
    found = problem_of(Cell.parse(cell), backend)
    assert isinstance(found, Skipped)
    assert why in found.reason
    if backend == "fa3" and cell != SINGLE_DECODE:
        assert problem(cell, "fa2").backend == "fa2"


def test_fa3_is_asked_for_what_it_takes_and_for_what_it_refuses_in_words() -> None:
    for cell in (CUSTOM, PREFILL.replace("bf16", "fp8_e4m3"), PREFILL.replace("x128/", "x192x128/"), DECODE):
        assert problem(cell, "fa3").named == "fa3"


def test_the_word_is_the_property_that_says_it_and_else_the_field() -> None:
    assert word(SimpleNamespace(_backend="auto", resolved_backend="fa3")) == "fa3"
    assert word(SimpleNamespace(_backend="fa2")) == "fa2"


def test_each_engine_is_listed_under_its_name() -> None:
    assert {name: load(name).backend for name in ENGINES if name.startswith("flashinfer")} == BACKENDS  # type: ignore[attr-defined]
    assert set(BACKENDS.values()) == {"auto", "cuda_cores", "fa2", "fa3"}


@pytest.mark.parametrize(
    ("engines", "generators"),
    [
        ([], {"batch_decode", "batch_prefill", "quantization"}),
        (["--engine", "flashinfer-cuda-cores"], {"batch_decode"}),
        (["--engine", "flashinfer-fa2", "--engine", "flashinfer-fa3"], {"batch_prefill", "quantization"}),
    ],
)
def test_modules_are_built_for_the_engines_that_are_named(
    monkeypatch: pytest.MonkeyPatch, engines: list[str], generators: set[str]
) -> None:
    built: list[flashinfer_jit.Module] = []
    monkeypatch.setattr(sys, "argv", ["flashinfer_jit", "flashinfer", "--only", "decode/bf16/*", *engines])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(flashinfer_jit, "spec", lambda module: SimpleNamespace(name=str(module), module=module))
    monkeypatch.setattr(flashinfer_jit, "build", lambda specs: built.extend(spec.module for spec in specs))
    flashinfer_jit.main()
    assert {module.generator for module in built} == generators
    assert len(set(built)) == len(built)


@pytest.mark.parametrize(
    ("capability", "backends"),
    [((8, 0), {"auto", "cuda_cores", "fa2"}), ((10, 0), {"cuda_cores", "fa2"}), ((9, 0), set(BACKENDS.values()))],
)
def test_no_module_is_built_for_a_sweep_that_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], capability: tuple[int, int], backends: set[str]
) -> None:
    asked: set[str] = set()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(flashinfer_jit, "modules", lambda _cells, _sm, backends: asked.update(backends) or [])
    monkeypatch.setattr(flashinfer_jit, "build", lambda _: None)
    command = ["flashinfer_jit", "flashinfer", "--only", "decode/bf16/*"]
    monkeypatch.setattr(sys, "argv", command)
    flashinfer_jit.main()
    assert asked == backends
    for name, backend in BACKENDS.items():
        if backend not in backends:
            monkeypatch.setattr(sys, "argv", [*command, "--engine", name])
            with pytest.raises(SystemExit, match="2"):
                flashinfer_jit.main()
            said = capsys.readouterr().err.splitlines()[-1]
            assert f"--engine {name}: " in said
            assert "name" in said


@pytest.mark.parametrize(
    ("engine", "first"),
    [
        (FlashInfer, "flashinfer:fa3"),
        (FlashInferCudaCores, "flashinfer:cudacore_decode"),
        (FlashInferFa2, "flashinfer:fa2"),
        (FlashInferFa3, "flashinfer:fa3"),
    ],
)
def test_what_is_asked_for_is_the_first_path(engine: type[FlashInfer], first: str) -> None:
    assert {paths[0].name for paths in object.__new__(engine).paths().values()} == {first}


def test_a_back_end_that_is_not_honoured_is_a_fallback_and_a_contradiction() -> None:
    paths = object.__new__(FlashInferFa3).paths()["attention"]
    name = "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<"
    words = Words({"attention": "flashinfer:fa3"}, {}, {})
    found = ran(Cell.parse(PREFILL), "attention", (Kernel(name, "fa2", "attention", 1),), paths, words)
    assert found.contradiction
    assert is_silent_fallback(found, tuple(path.name for path in paths))


def test_a_refusal_while_it_runs_is_in_flashinfer_s_words() -> None:
    words = "BatchPrefillWithPagedKVCacheSM90Run failed with error: operation not supported"

    def run() -> None:
        raise RuntimeError(f"Check failed: (status == cudaSuccess) is false: {words}")

    asked = problem(CUSTOM, "fa3")
    call = _Call({"attention": Planned(asked, run)}, 90, Inputs(Cell.parse(CUSTOM), asked, torch.zeros(0)))
    with pytest.raises(Declined) as caught:
        call.run(nullcontext)  # type: ignore[arg-type]
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("engine", "capability", "why"),
    [
        (FlashInfer, (10, 0), "on sm_100 .*cuDNN or CUTLASS.*flashinfer-fa2"),
        (FlashInfer, (11, 0), "on sm_110 .*cuDNN or CUTLASS"),
        (FlashInferFa3, (8, 0), "this is sm_80"),
        (FlashInferFa3, (10, 3), "this is sm_103"),
        (FlashInfer, (9, 0), None),
        (FlashInfer, (12, 0), None),
        (FlashInferCudaCores, (10, 0), None),
        (FlashInferFa2, (10, 0), None),
        (FlashInferFa3, (9, 0), None),
    ],
)
def test_a_gpu_whose_choices_the_adapter_does_not_know_ends_the_sweep_with_one_line(
    monkeypatch: pytest.MonkeyPatch, engine: type[FlashInfer], capability: tuple[int, int], why: str | None
) -> None:
    installed: Any = ModuleType("flashinfer")
    installed.__version__ = "0.7.2"
    monkeypatch.setitem(sys.modules, "flashinfer", installed)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)  # the workspace
    if why is None:
        assert engine("cuda").revision().startswith("0.7.2-torch")
        return
    with pytest.raises(UserError, match=why) as caught:
        engine("cuda")
    assert "\n" not in str(caught.value)
