"""On a GPU: each fast path as it is dispatched and launched, against the reference in float32."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, chunk, decode, prefill, title
from nearness import near
from torch import Tensor

from kaudit_kernels import eager, eager_attention
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel, decide
from kaudit_kernels.engine import ARGUMENTS, Step, device_facts
from kaudit_kernels.inputs import make_inputs
from kaudit_kernels.problem import Problem
from kaudit_probes.families import classify

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned_outputs")]

CELLS: list[tuple[str, dict[str, Any]]] = [
    ("split_kv_decode", decode(512, batch=1)),
    ("split_kv_decode", decode(4096, batch=4)),
    ("split_kv_decode", decode(4096, batch=64)),
    ("split_kv_decode", decode(300, page_size=8)),
    ("split_kv_decode", decode(100, batch=300)),
    ("split_kv_decode", decode(4097, batch=4, page_size=64, skew=True)),
    ("split_kv_decode", decode(3000, batch=2, page_size=32, head_dim=64, q_heads=28, kv_heads=4, mask="none")),
    ("split_kv_decode", decode(8191, batch=2, mask="window", window=1024)),
    ("split_kv_decode", decode(2048, batch=3, features="prefix_share grammar", rope_scaling="llama3")),
    ("split_kv_decode", decode(131072, batch=1, q_heads=16, kv_heads=1)),
    ("split_kv_decode", decode(1000, batch=2, head_dim=256, features="softcap sinks", q_heads=16, kv_heads=1)),
    ("split_kv_decode", decode(1000, batch=2, head_dim=192, v_head_dim=128, q_heads=16)),
    ("split_kv_decode", decode(1000, batch=2, head_dim=80, kv_dtype="int8")),
    ("split_kv_decode", {"q_len": 8, "kv_len": 3000, "batch": 3, "q_heads": 64, "kv_dtype": "fp8_e4m3", "skew": True}),
    ("split_kv_decode", {"q_len": 7, "kv_len": 300, "mask": "tree", "features": "speculative_tree", "batch": 2}),
    ("cascade_decode", decode(20000, batch=9, features="prefix_share", skew=True, kv_heads=32)),
    ("cascade_decode", decode(9000, batch=9, features="prefix_share sinks softcap", head_dim=256)),
    ("cascade_decode", {"q_len": 4, "kv_len": 9000, "batch": 12, "features": "prefix_share"}),
    ("warp_decode", decode(512, kv_dtype="fp8_e4m3", batch=2)),
    ("warp_decode", decode(512, kv_dtype="fp8_e5m2", batch=2, features="sinks softcap")),
    ("warp_decode", decode(512, kv_dtype="int8", batch=2, rope="interleaved", rope_scaling="yarn", rope_offset=131071)),
    ("warp_decode", decode(5000, kv_dtype="fp8_e4m3", batch=40, page_size=1, skew=True, q_heads=8)),
    ("warp_decode", decode(5000, kv_dtype="int8", batch=2, head_dim=256, mask="window", window=1000, q_heads=16)),
    ("warp_decode", decode(200, kv_dtype="int8", batch=300, head_dim=64)),
    ("warp_decode", {"q_len": 2, "kv_len": 3000, "batch": 3, "kv_dtype": "fp8_e5m2", "page_size": 8}),
    ("flash_prefill", decode(1000, kv_layout="contiguous", q_heads=48, kv_heads=1, batch=3)),
    ("flash_prefill", prefill(1, kv_layout="contiguous")),
    ("flash_prefill_tma", prefill(1000, kv_layout="contiguous", batch=2)),
    ("flash_prefill", prefill(2048, kv_layout="ragged", skew=True, batch=3, head_dim=64)),
    ("flash_prefill_tma", prefill(2048, kv_layout="ragged", skew=True, batch=3, head_dim=256, q_heads=16)),
    ("flash_prefill", prefill(777, page_size=16, mask="window", window=100, batch=2)),
    ("flash_prefill_tma", prefill(513, kv_layout="contiguous", mask="none", q_heads=7, kv_heads=1)),
    ("flash_prefill", chunk(5, 67, kv_layout="contiguous")),
    ("flash_prefill", chunk(128, 4096, page_size=16, batch=2)),
    ("flash_prefill", chunk(33, 1025, page_size=1, batch=2, skew=True, mask="window", window=257)),
    ("flash_prefill", {"phase": "mixed", "q_len": 100, "kv_len": 900, "batch": 6, "skew": True}),
    ("flash_prefill_tma", chunk(200, 3000, page_size=128, skew=True, batch=3)),
    ("flash_prefill", chunk(16, 256, mask="custom", batch=2)),
    ("flash_prefill", chunk(60, 300, kv_dtype="fp8_e4m3", features="sinks softcap", head_dim=80)),
    ("flash_prefill", chunk(60, 300, mask="tree", features="speculative_tree", head_dim=192, v_head_dim=128)),
    ("eager", chunk(16, 256, head_dim=320, batch=2)),
]

REFERENCE: dict[str, Callable[..., Tensor]] = {
    "rms_norm": eager.rms_norm,
    "attention": eager_attention.attention,
    **dict.fromkeys(("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), eager.project),
    "add_rms_norm": eager.add_rms_norm,
    "silu_mul": eager.silu_mul,
}


def _here(changes: dict[str, Any]) -> Problem:
    sm, sm_count = device_facts("cuda")
    return but(BASE, **changes, sm=sm, sm_count=sm_count)


def _near(found: Tensor, wanted: Tensor) -> None:
    """Each element within the rounding of its dtype: it is no sum."""
    assert found.isfinite().all()
    torch.testing.assert_close(found, wanted, rtol=2 * torch.finfo(found.dtype).eps, atol=1e-6)


def _kernel(op: str, name: str) -> Kernel:
    return next(each for each in CATALOGUE[op] if each.name == name)


def _most(kernel: Kernel, axis: str) -> int:
    """What the kernel requires of an axis at most."""
    (most,) = (each.bounds for each in kernel.requires if each.axis == axis and each.needed.startswith("at most"))
    return int(*most)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("path", "changes"), CELLS, ids=[f"{path}-{title(changes)}" for path, changes in CELLS])
def test_every_op_of_a_step_gives_the_reference_result(path: str, changes: dict[str, Any], dtype: str) -> None:
    changes = {"kv_dtype": dtype, **changes, "dtype": dtype}
    step = Step(_here(changes), "cuda")
    step.run()
    assert step.decisions["attention"].chosen.name == path
    first = {op: output.clone() for op, output in step.outputs.items()}
    for op, reference in REFERENCE.items():
        wanted = reference(*ARGUMENTS[op](step.inputs, step.outputs))
        if op == "attention":
            near(step.outputs[op], wanted, token=2)
        elif op.endswith("_proj"):
            near(step.outputs[op], wanted)
        else:
            _near(step.outputs[op], wanted)
    step.run()
    for op, output in first.items():
        assert torch.equal(output, step.outputs[op]), op


def test_float32_steps_take_the_kernels_that_are_made_for_it() -> None:
    step = Step(_here(prefill(100, kv_layout="contiguous", dtype="fp32")), "cuda")
    step.run()
    chosen = {op: decision.chosen.name for op, decision in step.decisions.items()}
    assert (chosen["rms_norm"], chosen["attention"], chosen["silu_mul"]) == ("fused_rms_norm", "eager", "eager")
    _near(step.outputs["rms_norm"], eager.rms_norm(step.inputs.x, step.inputs.attention_norm))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "intermediate"), [(1, 8), (3, 2040), (17, 2056), (2, 12_008), (70_000, 64)])
def test_silu_mul_writes_every_row(dtype: torch.dtype, tokens: int, intermediate: int) -> None:
    (kernel, _) = CATALOGUE["silu_mul"]
    gate_up = (4 * torch.randn(tokens, 2 * intermediate, device="cuda")).to(dtype)
    gate_up[0, :4] = torch.tensor([-200.0, 200.0, 0.0, -0.0])
    _near(kernel.launch(gate_up), eager.silu_mul(gate_up))


SHOWN = [
    decode(4096, batch=2),
    decode(9000, batch=8, features="prefix_share"),
    decode(4096, batch=2, kv_dtype="int8"),
    decode(512, batch=2, features="grammar"),
    decode(512, batch=2, weight_dtype="fp8_e4m3"),
    prefill(256, kv_layout="contiguous"),
    prefill(256, kv_layout="contiguous", head_dim=64),
]


@pytest.mark.parametrize("changes", SHOWN, ids=title)
def test_the_profiler_shows_the_functions_that_the_catalogue_names(changes: dict[str, Any]) -> None:
    step = Step(_here(changes), "cuda")
    step.run()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(2):  # the first session of a process may lose its first kernels
        with torch.profiler.profile(activities=activities) as seen:
            step.run()
            torch.cuda.synchronize()
    names = [event.name for event in seen.events() if event.device_type.name == "CUDA"]
    named = []
    for op, decision in step.decisions.items():
        assert decide(op, step.problem, CATALOGUE) == decision
        named += [*decision.chosen.functions, *decision.chosen.also]
        for function in decision.chosen.functions:
            assert any(re.search(function, name) for name in names), (op, function, names)
    ours = {name for name in names if classify(name).name.startswith("reference_")}
    assert not [name for name in ours if not any(re.search(function, name) for function in named)]


@pytest.mark.parametrize("page_size", [1, 8, 16])
@pytest.mark.parametrize("changes", [decode(3000, batch=3, skew=True), decode(100, q_heads=8)], ids=title)
def test_warp_decode_in_16_bits_is_right_where_it_does_not_pay(changes: dict[str, Any], page_size: int) -> None:
    step = Step(_here(changes | {"page_size": page_size}), "cuda")
    step.run()
    arguments = ARGUMENTS["attention"](step.inputs, step.outputs)
    near(_kernel("attention", "warp_decode").launch(*arguments), eager_attention.attention(*arguments), token=2)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("split_kv_decode", {}),
        ("warp_decode", {"kv_dtype": "int8"}),
        ("cascade_decode", {"features": "prefix_share", "page_size": 8}),
    ],
)
def test_decode_of_as_many_requests_as_it_takes(name: str, changes: dict[str, Any]) -> None:
    """In parts: of the keys of so many there are enough only for a GPU of many more SMs."""
    kernel = _kernel("attention", name)
    few = {"q_heads": 2, "kv_heads": 1, "head_dim": 64, "vocabulary": 32}
    problem = but(_here(decode(600, batch=_most(kernel, "batch"), **few, **changes)), sm_count=4000)
    assert not [unmet for unmet in kernel.unmet(problem) if not unmet.worth]
    inputs = make_inputs(problem, "cuda", seed=0)
    qkv = torch.randn(problem.tokens, problem.qkv_width, device="cuda").bfloat16()
    q = eager.rope_kv_write(qkv, inputs)
    near(kernel.launch(q, inputs), eager_attention.attention(q, inputs), token=2)


def test_kernels_run_on_the_current_stream() -> None:
    (kernel, _) = CATALOGUE["silu_mul"]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        gate_up = torch.randn(4096, 4096, device="cuda").bfloat16()
        found = kernel.launch(gate_up)
    side.synchronize()
    _near(found, eager.silu_mul(gate_up))
