"""The projections: few tokens, fp8, and when each is taken. Interpreted on a CPU, compiled on a GPU (conftest.py)."""

from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, decode, prefill, title

from kaudit_kernels import eager
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import NoKernel, decide
from kaudit_kernels.fp8 import fp8_weight, quantised
from kaudit_kernels.problem import DType, WeightDType
from kaudit_kernels.projections import SkinnyTile, scaled_mm, skinny_gemm

poisoned = pytest.mark.usefixtures("poisoned_outputs")
PROJECTIONS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
FP8 = {"weight_dtype": "fp8_e4m3"}


@poisoned
@pytest.mark.parametrize("tile", [None, SkinnyTile(block_n=16, block_k=32, warps=4, stages=3)])
@pytest.mark.parametrize(
    ("tokens", "depth", "width"), [(1, 512, 64), (3, 1000, 520), (16, 4096, 72), (17, 40, 7), (64, 2048, 64)]
)
@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
def test_skinny_gemm(
    tile: SkinnyTile | None, tokens: int, depth: int, width: int, dtype: torch.dtype, device: str
) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    x = torch.randn(tokens, depth, device=device).to(dtype)
    weight = (torch.randn(depth, width, device=device) / depth**0.5).to(dtype)
    found = skinny_gemm(x, weight, tile)
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), x.double() @ weight.double(), rtol=unit, atol=1e-4)
    assert torch.equal(found, skinny_gemm(x, weight, tile))


@poisoned
@pytest.mark.parametrize(("tokens", "depth", "width"), [(1, 1040, 32), (5, 4112, 48)])
def test_scaled_mm(tokens: int, depth: int, width: int, device: str) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    x = torch.randn(tokens, depth, device=device).to(torch.bfloat16)
    x[-1] = 0
    weight = fp8_weight(torch.randn(depth, width, device=device) / depth**0.5)
    # The same products in fp8; tensor cores keep 14 bits of their sum.
    torch.testing.assert_close(scaled_mm(x, weight), eager.project(x, weight), rtol=2**-7, atol=4e-3)


def test_rounding_to_fp8_scales_the_largest_to_the_largest_and_keeps_zeros() -> None:
    x = torch.tensor([[1.0, -3.5, 0.25], [0.0, 0.0, 0.0], [1e30, 1e-30, -1e29]])
    values, scales = quantised(x, dim=1)
    assert values.float().abs().amax(1).tolist() == [448, 0, 448]
    assert scales.tolist() == [[3.5 / 448], [pytest.approx(1e-12 / 448)], [pytest.approx(1e30 / 448)]]
    torch.testing.assert_close((values.float() * scales)[[0, 2]], x[[0, 2]], rtol=2**-4, atol=1e21)


def test_a_weight_in_fp8_is_scaled_by_column_and_stored_by_column() -> None:
    weight = torch.randn(32, 16) * torch.logspace(-3, 3, 16)
    made = fp8_weight(weight)
    assert made.values.stride() == (1, 32)
    assert made.scales.shape == (1, 16)
    error = (made.dequantised() - weight).abs()
    assert (error <= weight.abs() * 2**-4 + made.scales * 2**-10).all()


CHOICES: list[tuple[dict[str, Any], str, dict[str, list[str]]]] = [
    (decode(4096), "skinny_gemm", {}),
    (
        decode(4096, batch=17),
        "eager",
        {"skinny_gemm": ["tokens=17, pays with at most 16"], "scaled_mm": ["weight_dtype=bf16, needs fp8_e4m3"]},
    ),
    (
        prefill(100, dtype="fp32", batch=1),
        "eager",
        {
            "skinny_gemm": [
                "dtype=fp32, needs one of fp16, bf16",
                "tokens=100, needs at most 64",
                "tokens=100, pays with at most 16",
            ],
            "scaled_mm": ["weight_dtype=fp32, needs fp8_e4m3", "dtype=fp32, needs bf16"],
        },
    ),
    (decode(4096, **FP8), "scaled_mm", {"skinny_gemm": ["weight_dtype=fp8_e4m3, needs the same as dtype=bf16"]}),
    (
        decode(4096, **FP8, sm=86),
        "eager",
        {
            "skinny_gemm": ["weight_dtype=fp8_e4m3, needs the same as dtype=bf16"],
            "scaled_mm": ["sm=86, needs at least 89"],
        },
    ),
]


@pytest.mark.parametrize("op", PROJECTIONS)
@pytest.mark.parametrize(("changes", "chosen", "rejected"), CHOICES, ids=[title(case[0]) for case in CHOICES])
def test_choices(op: str, changes: dict[str, Any], chosen: str, rejected: dict[str, list[str]]) -> None:
    decision = decide(op, but(BASE, **changes), CATALOGUE)
    assert decision.chosen.name == chosen
    assert {each.kernel.name: [str(unmet) for unmet in each.unmet] for each in decision.rejected} == rejected


@pytest.mark.parametrize(
    ("op", "reasons"),
    [
        ("qkv_proj", ["hidden=1000, needs a multiple of 16", "qkv_width=1320, needs a multiple of 16"]),
        ("o_proj", ["attention_width=600, needs a multiple of 16", "hidden=1000, needs a multiple of 16"]),
        ("gate_up_proj", ["hidden=1000, needs a multiple of 16"]),
        ("down_proj", ["hidden=1000, needs a multiple of 16"]),
    ],
)
def test_fp8_says_which_width_is_no_multiple_of_16(op: str, reasons: list[str]) -> None:
    problem = but(BASE, **FP8, q_heads=25, kv_heads=5, head_dim=40, v_head_dim=24)
    (fp8,) = (each for each in decide(op, problem, CATALOGUE).rejected if each.kernel.name == "scaled_mm")
    assert [str(unmet) for unmet in fp8.unmet] == reasons


@pytest.mark.parametrize("op", PROJECTIONS)
@pytest.mark.parametrize(("dtype", "weight_dtype"), [("fp32", "fp16"), ("fp16", "bf16"), ("bf16", "fp32")])
def test_two_types_are_multiplied_by_no_kernel(op: str, dtype: DType, weight_dtype: WeightDType) -> None:
    """torch and tl.dot raise in the launch, words of their own."""
    with pytest.raises(NoKernel) as refused:
        decide(op, but(BASE, dtype=dtype, weight_dtype=weight_dtype), CATALOGUE)
    needs = {each.kernel.name: str(each.unmet[0]) for each in refused.value.rejected}
    wanted = f"weight_dtype={weight_dtype}, needs fp8_e4m3 or the same as dtype={dtype}"
    assert needs == {
        "skinny_gemm": wanted.replace("fp8_e4m3 or ", "") if dtype != "fp32" else "dtype=fp32, needs one of fp16, bf16",
        "scaled_mm": f"weight_dtype={weight_dtype}, needs fp8_e4m3",
        "eager": wanted,
    }


@pytest.mark.parametrize("op", PROJECTIONS)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_fp8_is_multiplied_in_a_step_of_bf16_alone(op: str, dtype: str) -> None:
    decision = decide(op, but(BASE, dtype=dtype, **FP8), CATALOGUE)
    (fp8,) = (each for each in decision.rejected if each.kernel.name == "scaled_mm")
    assert [str(unmet) for unmet in fp8.unmet] == [f"dtype={dtype}, needs bf16"]


def test_few_columns_and_columns_off_a_boundary_are_left_to_cublas() -> None:
    decision = decide("o_proj", but(BASE, q_heads=50, kv_heads=10, head_dim=18), CATALOGUE)
    reasons = [str(unmet) for unmet in decision.rejected[0].unmet]
    assert reasons == ["hidden=900, pays with at least 4096", "hidden=900, pays with a multiple of 8"]


def test_down_proj_which_reads_twice_what_it_writes_is_skinny_at_one_width() -> None:
    decisions = {heads: decide("down_proj", but(BASE, q_heads=heads), CATALOGUE) for heads in (24, 32, 40)}
    assert {heads: list(map(str, each.rejected)) for heads, each in decisions.items()} == {
        24: [
            "skinny_gemm (hidden=3072, pays with at least 4096)",
            "scaled_mm (weight_dtype=bf16, needs fp8_e4m3)",
        ],
        32: [],
        40: [
            "skinny_gemm (intermediate=10240, pays with at most 8192)",
            "scaled_mm (weight_dtype=bf16, needs fp8_e4m3)",
        ],
    }
