"""FlashInfer's own Python under the calls of its adapter, where it is installed. Its kernels stand still: no GPU."""

import shutil
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer_for_tests import CUSTOM, DECODE, FP8_KV, PREFILL, ROTATED, problem
from msgspec.structs import replace

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.flashinfer import BACKENDS, saying_no
from kaudit_probes.engines.flashinfer_inputs import Inputs
from kaudit_probes.engines.flashinfer_jit import build, modules, spec
from kaudit_probes.engines.flashinfer_problem import Backend, Problem, problem_of


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
            # A loader, which would remember what stands still.
            if hasattr(value, "cache_clear") or name == "get_customize_batch_prefill_module":
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
    calls = planned(inputs)
    assert {op: call.word for op, call in calls.items()} == words
    call = _Call(calls, 90, inputs)
    call.run(nullcontext)  # type: ignore[arg-type]
    words = {op: planned_call.word or planned_call.asked for op, planned_call in calls.items()}
    single_decode = inputs.problem.entry == "single_decode"  # it says nothing, and no predicate is asked of it
    assert call.explain().keys() == {op for op, word in words.items() if word == "fa2" or single_decode}
    assert (None in words.values()) == single_decode
    assert "none of the conditions" not in str(call.explain())


@pytest.mark.usefixtures("hopper")
def test_cuda_core_decode_says_nothing_of_its_back_end() -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    inputs = Inputs(Cell.parse(DECODE), problem(DECODE, "cuda_cores"), torch.zeros(1024, dtype=torch.uint8))
    (call,) = planned(inputs).values()
    assert (call.word, call.asked) == (None, None)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("backend", ["fa2", "fa3"])
@pytest.mark.parametrize(
    "cell", [PREFILL, DECODE, CUSTOM, PREFILL.replace("paged16", "ragged"), DECODE.replace("plain", "sinks")]
)
def test_a_back_end_by_name_is_what_flashinfer_says_it_took(cell: str, backend: Backend) -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    inputs = Inputs(Cell.parse(cell), problem(cell, backend), torch.zeros(1024, dtype=torch.uint8))
    (call,) = planned(inputs).values()
    call.run()
    assert call.word == backend


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("cell", "backend", "words"),
    [
        (PREFILL.replace("bf16", "fp8_e4m3"), "fa2", "fp8 tensor core is not supported in fa2 backend"),
        (DECODE.replace("b2q1", "b2q4"), "fa3", "q_len_per_req > 1 is currently only supported on the fa2 tensor-core"),
    ],
)
def test_a_back_end_by_name_is_refused_in_flashinfer_s_words(cell: str, backend: Backend, words: str) -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    inputs = Inputs(Cell.parse(cell), problem(cell, backend), torch.zeros(1024, dtype=torch.uint8))
    with pytest.raises(Declined) as caught, saying_no():
        planned(inputs)
    assert str(caught.value).startswith(words)


@pytest.mark.usefixtures("hopper")
def test_what_single_prefill_asserts_of_an_fp8_query_it_does_not_put_into_words() -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    cell = PREFILL.replace("bf16", "fp8_e4m3").replace("paged16", "contiguous").replace("b2", "b1")
    inputs = Inputs(Cell.parse(cell), dataclass_replace(problem(cell), window_left=31), torch.zeros(1024))
    (call,) = planned(inputs).values()
    with pytest.raises(AssertionError, match=r"^$"), saying_no():
        call.run()


@pytest.mark.parametrize("pattern", ["*/bf16/*", "*/fp16/*"])
@pytest.mark.parametrize("backend", BACKENDS.values())
def test_what_is_built_before_a_sweep_is_what_its_calls_load(hopper: set[str], pattern: str, backend: Backend) -> None:
    from kaudit_probes.engines.flashinfer_calls import planned

    cells = expand(load("flashinfer")).only(pattern).cells
    for asked, cell in {problem_of(cell, backend): cell for cell in cells}.items():
        if isinstance(asked, Problem):
            few = replace(cell.shape, batch=min(cell.shape.batch, 2), q_len=min(cell.shape.q_len, 4), kv_len=64)
            inputs = Inputs(replace(cell, shape=few), asked, torch.zeros(1024, dtype=torch.uint8))
            with suppress(Declined), saying_no():
                for call in planned(inputs).values():
                    call.run()
    assert hopper == {spec(module).name for module in modules(cells, 90, (backend,))}


@pytest.mark.skipif(shutil.which("ninja") is None, reason="FlashInfer builds with ninja")
def test_what_is_built_is_not_built_again(jit_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, log = jit_dir / "compiler", jit_dir / "compiled"
    writes = 'while [ $# -gt 0 ]; do case $1 in -o|-MF) : > "$2";; esac; shift; done'
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{writes}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("FLASHINFER_NVCC", str(compiler))
    monkeypatch.setenv("CXX", str(compiler))
    specs = [spec(module) for module in modules(expand(load("flashinfer")).only("decode/bf16/*").cells, 90, ("auto",))]
    build(specs)
    compiled = log.read_text()
    for built in specs:
        assert built.name in compiled
        built.build()  # as a plan does that asks for the module
    assert log.read_text() == compiled
