"""The projections: few tokens, fp8, and when each is taken. Interpreted on a CPU, compiled on a GPU (conftest.py)."""

from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, decode, prefill, title

from kaudit_kernels import eager
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.fp8 import fp8_weight, quantised
from kaudit_kernels.projections import SkinnyTile, scaled_mm, skinny_gemm, split_count, tile_of

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


@pytest.mark.parametrize(
    ("depth", "width", "splits"),
    [(4096, 6144, 1), (4096, 4096, 1), (4096, 28672, 1), (4096, 2048, 2), (4096, 512, 8), (1024, 512, 2), (100, 64, 1)],
)
def test_few_columns_are_split_in_depth_until_each_sm_has_a_program(depth: int, width: int, splits: int) -> None:
    assert split_count(depth, width, tile_of(width)) == splits


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
                "weight_dtype=fp32, needs one of fp16, bf16",
                "tokens=100, needs at most 64",
                "tokens=100, pays with at most 16",
            ],
            "scaled_mm": ["weight_dtype=fp32, needs fp8_e4m3", "dtype=fp32, needs bf16"],
        },
    ),
    (decode(4096, **FP8), "scaled_mm", {"skinny_gemm": ["weight_dtype=fp8_e4m3, needs one of fp16, bf16"]}),
    (
        decode(4096, **FP8, sm=86),
        "eager",
        {
            "skinny_gemm": ["weight_dtype=fp8_e4m3, needs one of fp16, bf16"],
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
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_fp8_is_multiplied_in_a_step_of_bf16_alone(op: str, dtype: str) -> None:
    decision = decide(op, but(BASE, dtype=dtype, **FP8), CATALOGUE)
    (fp8,) = (each for each in decision.rejected if each.kernel.name == "scaled_mm")
    assert [str(unmet) for unmet in fp8.unmet] == [f"dtype={dtype}, needs bf16"]


def test_few_columns_and_columns_off_a_boundary_are_left_to_cublas() -> None:
    decision = decide("o_proj", but(BASE, q_heads=50, kv_heads=10, head_dim=18), CATALOGUE)
    reasons = [str(unmet) for unmet in decision.rejected[0].unmet]
    assert reasons == ["hidden=900, pays with a multiple of 8", "hidden=900, pays with at least 4096"]
