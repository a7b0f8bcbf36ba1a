"""A whole step on a CPU: what it decides, announces, launches and gives."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from kernel_problems import SMALL, but, chunk, decode, prefill, title
from torch.profiler import ProfilerActivity, profile

from kaudit_kernels import eager_attention
from kaudit_kernels.admission import Inadmissible
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import NoKernel
from kaudit_kernels.engine import Step, device_facts, ops

pytestmark = pytest.mark.usefixtures("poisoned_outputs")

FUSED: list[dict[str, Any]] = [
    prefill(33, kv_layout="contiguous"),
    prefill(20, kv_layout="ragged", skew=True, batch=3, mask="none"),
    prefill(24, kv_layout="contiguous", dtype="bf16", mask="custom", features="grammar"),
    chunk(5, 33, kv_layout="contiguous", skew=True),
    chunk(5, 33, kv_layout="ragged", mask="window", window=7, dtype="fp16"),
    decode(33, kv_layout="contiguous", mask="window", window=4, q_heads=3, kv_heads=3),
    decode(40, kv_layout="contiguous", q_len=7, mask="tree", features="speculative_tree") | {"q_len": 7},
    {"phase": "mixed", "q_len": 6, "kv_len": 30, "batch": 4, "kv_layout": "ragged", "q_heads": 6, "kv_heads": 1},
]

EAGER: list[dict[str, Any]] = [
    decode(33, page_size=16),
    decode(40, page_size=8, features="prefix_share", skew=True, rope="interleaved", rope_scaling="llama3"),
    chunk(9, 40, kv_layout="contiguous", features="sinks softcap", rope_scaling="yarn", rope_offset=131071),
    prefill(17, kv_layout="contiguous", kv_dtype="fp8_e4m3", rope="none"),
    decode(33, page_size=16, kv_dtype="int8", rope_scaling="linear"),
    decode(33, kv_layout="ragged", kv_dtype="fp8_e5m2", dtype="fp16", skew=True),
    prefill(17, kv_layout="contiguous", head_dim=24, v_head_dim=16),
]


def _run(changes: dict[str, Any]) -> Step:
    step = Step(but(SMALL, **changes), "cpu")
    step.run()
    return step


@pytest.mark.parametrize("changes", FUSED, ids=title)
def test_fused_attention_gives_the_reference_result(changes: dict[str, Any]) -> None:
    step = _run(changes)
    assert step.decisions["attention"].chosen.name == "fused_sdpa"
    found = step.outputs["attention"]
    wanted = eager_attention.attention(step.outputs["rope_kv_write"], step.inputs)
    unit = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found, wanted, rtol=4 * unit, atol=4 * unit)


@pytest.mark.parametrize("changes", FUSED + EAGER, ids=title)
def test_a_step_is_finite_and_the_same_each_time(changes: dict[str, Any]) -> None:
    step = _run(changes)
    first = {op: output.clone() for op, output in step.outputs.items()}
    step.run()
    for op, output in first.items():
        assert torch.equal(output, step.outputs[op]), op
        if op != "logits_mask":
            assert output.isfinite().all(), op
    assert tuple(first) == ops(step.problem)


@pytest.mark.parametrize("changes", EAGER, ids=title)
def test_what_the_fused_path_does_not_do_is_eager(changes: dict[str, Any]) -> None:
    assert _run(changes).decisions["attention"].chosen.name == "eager"


@pytest.mark.parametrize("scale", ["k_scale", "v_scale"])
def test_the_scales_of_a_quantised_cache_change_the_result(scale: str) -> None:
    step = _run(decode(33, page_size=16, kv_dtype="int8"))
    before, q = step.outputs["attention"].clone(), step.outputs["rope_kv_write"]
    getattr(step.inputs.cache, scale).mul_(2)
    doubled = eager_attention.attention(q, step.inputs)
    assert torch.allclose(doubled, 2 * before, atol=1e-6) == (scale == "v_scale")
    assert not torch.allclose(doubled, before, atol=1e-3)


def test_the_kernel_that_a_decision_names_is_the_one_a_profiler_sees() -> None:
    for changes in (FUSED[0], FUSED[3], EAGER[0]):
        step = Step(but(SMALL, **changes), "cpu")
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step.run()
        names = [event.name for event in seen.events()]
        chosen = step.decisions["attention"].chosen
        for kernel in CATALOGUE["attention"]:
            shown = [any(re.search(function, name) for name in names) for function in kernel.functions]
            assert not shown or all(shown) == (kernel.name == chosen.name)


def test_each_op_is_launched_in_its_span_and_announced_before_it(caplog: pytest.LogCaptureFixture) -> None:
    happened: list[str] = []

    @contextmanager
    def span(op: str) -> Iterator[None]:
        happened.extend(record.decision.op for record in caplog.records)  # type: ignore[attr-defined]
        caplog.clear()
        happened.append(f"<{op}>")
        yield

    step = Step(but(SMALL, **decode(33, features="grammar")), "cpu")
    with caplog.at_level(logging.INFO, "kaudit_kernels.dispatch"):
        step.run(span)
    fused = [op for op, kernels in CATALOGUE.items() if kernels[0].unmet(step.problem)]
    assert "rms_norm" in fused
    assert happened == [word for op in ops(step.problem) for word in ((op,) if op in fused else ()) + (f"<{op}>",)]


def test_a_decision_without_rejections_is_not_announced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kaudit_kernels.dispatch"):
        step = _run(decode(33))
    announced = {record.decision.op: record for record in caplog.records}  # type: ignore[attr-defined]
    assert set(announced) == {op for op, decision in step.decisions.items() if decision.rejected}
    message = announced["rms_norm"].getMessage()
    assert message.startswith("rms_norm: eager, not ")
    assert "fused_rms_norm (sm=0, needs at least 80)" in message


def test_what_no_kernel_takes_is_refused_in_words() -> None:
    step = Step(but(SMALL, head_dim=15, kv_len=8), "cpu")
    with pytest.raises(NoKernel, match=r"rope_kv_write: no kernel takes this problem: .*head_dim=15, needs"):
        step.run()


def test_what_contradicts_itself_is_refused_before_any_kernel_is_asked() -> None:
    with pytest.raises(Inadmissible, match=r"^kv_heads=2, needs a divisor of q_heads=5$"):
        Step(but(SMALL, q_heads=5, kv_heads=2, kv_len=8), "cpu")
    with pytest.raises(Inadmissible, match=r"^last_page_len=17, needs at most page_size=16: "):
        Step(but(SMALL, kv_len=8, features="bad_last_page"), "cpu")


def test_a_seed_is_a_step() -> None:
    problem = but(SMALL, **decode(9))
    outputs = []
    for seed in (0, 0, 1):
        step = Step(problem, "cpu", seed)
        step.run()
        outputs.append(step.outputs["down_proj"])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_cpu_has_no_sms() -> None:
    assert device_facts("cpu") == (0, 0)
