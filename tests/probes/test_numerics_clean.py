"""What is right is not accused, by any adapter that hands its results over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from numerics_for_tests import NARROW, PLAIN, WINDOW, checked

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit_probes.engines.flashinfer import _Call
from kaudit_probes.engines.flashinfer_inputs import Inputs
from kaudit_probes.engines.flashinfer_problem import Planned, Problem, problem_of
from kaudit_probes.engines.sdpa import SdpaEngine
from kaudit_probes.engines.torch_varlen import VarlenEngine, arguments, attention_of
from kaudit_probes.numerics import check


def clean(matrix: str, supports: Callable[[Cell], bool], most: int) -> Iterator[Cell]:
    """Of a shipped matrix, cells that a CPU has time for."""
    cells = [cell for cell in expand(load(matrix)).cells if supports(cell)]
    small = [cell for cell in cells if cell.shape.batch * cell.shape.q_len * cell.shape.kv_len * cell.heads.q < most]
    yield from small


def test_no_clean_cell_of_the_reference_engine_is_accused() -> None:
    found = {cell.id: checked(cell.id) for cell in clean("smoke", lambda _: True, 1 << 20)}
    assert len(found) >= 20
    assert {one.verdict for ops in found.values() for one in ops.values()} == {"ok"}


def test_no_clean_cell_of_sdpa_is_accused() -> None:
    engine = SdpaEngine("cpu")
    found = {}
    for cell in list(clean("sdpa", lambda cell: engine.supports(cell) is None, 1 << 16))[::4]:
        found[cell.id] = check(engine.prepare(cell).numbers())
    assert len(found) >= 30
    assert {one.verdict for ops in found.values() for one in (ops or {}).values()} == {"ok"}


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("layout", ["paged16", "ragged"])
def test_flashinfer_is_held_against_its_own_pages(layout: str, kv_dtype: str) -> None:
    """Attention from pages and rows, written out: FlashInfer has no kernel for a CPU."""
    cell = Cell.parse(f"prefill/bf16/kv-{kv_dtype}/h4x2x64/{layout}/window8/none/softcap/b2q24k40skew")
    asked = problem_of(cell)
    assert isinstance(asked, Problem)
    inputs = Inputs(cell, asked, torch.zeros(1, dtype=torch.uint8))

    def run() -> torch.Tensor:
        for request, (q_len, kv_len) in enumerate(zip(inputs.q_lens, inputs.kv_lens, strict=True)):
            for token in range(q_len):
                seen = range(max(0, kv_len - q_len + token - 7), kv_len - q_len + token + 1)
                if layout == "ragged":
                    first = int(inputs.kv_starts[request])
                    k, v = (x.float()[[first + key for key in seen]] for x in inputs.packed_kv)
                else:
                    starts = inputs.pages.starts
                    own = [int(inputs.pages.indices[starts[request] + key // 16]) for key in seen]
                    rows = [key % 16 for key in seen]
                    k, v = (inputs.paged_kv.float()[own, x, rows] for x in (0, 1))  # type: ignore[union-attr]
                row = int(inputs.q_starts[request]) + token
                for head in range(4):
                    scores = 30 * (k[:, head // 2] @ inputs.q[row, head].float() / 8 / 30).tanh()
                    inputs.out[row, head] = (scores.softmax(0) @ v[:, head // 2]).bfloat16()
        return inputs.out

    call = _Call({"attention": Planned(asked, run)}, 90, inputs)
    (found,) = (check(call.numbers()) or {}).values()
    assert found.verdict == "ok", found
    call = _Call({"attention": Planned(asked, lambda: inputs.out)}, 90, inputs)
    (found,) = (check(call.numbers()) or {}).values()
    assert found.verdict == "unwritten"


@pytest.mark.parametrize("change", [("/none/", "/neox/"), ("/bf16/kv-bf16/", "/fp8_e4m3/kv-fp8_e4m3/")])
def test_what_flashinfer_computes_in_a_precision_of_its_own_is_not_checked(change: tuple[str, str]) -> None:
    cell = Cell.parse("prefill/bf16/kv-bf16/h4x2x64/paged16/causal/none/plain/b2q8k16".replace(*change))
    asked = problem_of(cell)
    assert isinstance(asked, Problem)
    assert _Call({}, 90, Inputs(cell, asked, torch.zeros(1, dtype=torch.uint8))).numbers() == []


def test_varlen_hands_over_its_log_sum_exp(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no kernel of it for a CPU: the textbook stands in."""
    cell = Cell.parse("mixed/bf16/kv-bf16/h4x2x64/paged16/window8/none/plain/b3q8k40skew")
    takes = frozenset({"block_table", "seqused_k", "window_size", "enable_gqa"})
    asked = attention_of(cell, arguments(cell, "cpu", takes))

    def varlen_attn(return_aux: Any = None, **_: Any) -> Any:
        import logging

        logging.getLogger("torch.nn.attention.varlen").info("Using Flash Attention backend for varlen_attn")
        out, lse = asked.compute()
        return (out.bfloat16(), lse.T.float()) if return_aux else out.bfloat16()

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    call = VarlenEngine("cpu").prepare(cell)
    call.run(lambda _: torch.inference_mode())
    (found,) = (check(call.numbers()) or {}).values()
    assert found.verdict == "ok"
    assert found.numbers.lse_error is not None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_kernels_of_the_reference_engine_are_right_on_a_gpu(dtype: str) -> None:
    for cell in (
        PLAIN.replace("h4x2x64", "h32x8x128").replace("b2q1k100", "b4q1k4096skew"),  # split_kv_decode
        WINDOW.replace("window32", "window1024").replace("b2q1k100", "b2q1k4096"),
        NARROW,
        "prefill/bf16/kv-bf16/h8x2x128/ragged/causal/neox+llama3@131071/plain/b3q300k300skew",  # flash_prefill
        "mixed/bf16/kv-bf16/h8x2x64/contiguous/window100/interleaved+yarn/plain/b4q128k512",
        "chunked_prefill/bf16/kv-fp8_e4m3/h8x8x64/paged16/causal/none/sinks+softcap/b2q64k256",
    ):
        found = checked(cell.replace("bf16", dtype), "cuda")
        assert {op: one for op, one in found.items() if one.verdict != "ok"} == {}


@pytest.mark.gpu
def test_torchs_attention_is_right_on_a_gpu() -> None:
    engine, asked = SdpaEngine("cuda"), 0
    for cell in clean("sdpa", lambda cell: engine.supports(cell) is None, 1 << 21):
        for op, one in (check(engine.prepare(cell).numbers()) or {}).items():
            assert one.verdict == "ok", (cell.id, op, one)
            asked += 1
    assert asked >= 300
