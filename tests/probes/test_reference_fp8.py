"""Cells of fp8 weights in the reference engine: every op is right by a textbook of fp8, and a wrong scale is not."""

from functools import partial

import pytest
import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit_kernels import eager
from kaudit_kernels.fp8 import Fp8Weight, fp8_weight
from kaudit_probes import oracle
from kaudit_probes.engines.reference import ReferenceEngine
from kaudit_probes.numerics import Computed, check, compare

CELLS = (
    "decode/fp8_e4m3/kv-int8/h4x2x64/paged16/causal/neox/plain/b3q1k40skew",
    "prefill/fp8_e4m3/kv-fp8_e4m3/h3x1x40/contiguous/causal/interleaved/plain/b2q33k33",  # 120 columns: not by 16
    "mixed/fp8_e4m3/kv-fp8_e5m2/h8x2x128/ragged/window8/none/softcap/b3q8k40",
)


@pytest.mark.parametrize(
    "cell", [*CELLS, pytest.param(CELLS[0].replace("h4x2x64", "h32x8x128"), marks=pytest.mark.gpu)]
)
def test_every_op_is_right(cell: str) -> None:
    call = ReferenceEngine("cuda" if torch.cuda.is_available() else "cpu").prepare(Cell.parse(cell))
    verdicts = {op: found.verdict for op, found in (check(call.numbers()) or {}).items()}
    assert set(verdicts.values()) == {"ok"}, verdicts
    assert set(verdicts) >= {"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "attention"}


def _of_other_columns(x: Tensor, weight: Fp8Weight) -> Tensor:
    return eager.project(x, Fp8Weight(weight.values, weight.scales.roll(1, dims=1)))


def _unscaled(x: Tensor, weight: Fp8Weight) -> Tensor:
    return eager.project(x, Fp8Weight(weight.values, torch.ones_like(weight.scales)))


def _one_scale_for_all_rows(x: Tensor, weight: Fp8Weight) -> Tensor:
    scale = x.float().abs().max() / 448
    return ((x.float() / scale).to(torch.float8_e4m3fn).float() * scale @ weight.dequantised()).to(x.dtype)


def _in_bf16(x: Tensor, weight: Fp8Weight) -> Tensor:
    return x @ weight.dequantised().to(x.dtype)


@pytest.mark.parametrize("wrong", [_of_other_columns, _unscaled, _one_scale_for_all_rows, _in_bf16])
def test_a_product_in_fp8_with_other_scales_or_in_no_fp8_is_wrong(wrong: partial[Tensor]) -> None:
    torch.manual_seed(0)
    x, weight = (torch.randn(64, 256) * torch.rand(64, 1)).bfloat16(), fp8_weight(torch.randn(256, 512) / 16)
    x[0, 0] = 7.0  # the scale is 2**-6: many numbers of the row lie in the middle of two of fp8
    textbook = partial(oracle.project, x, weight)
    assert compare(Computed("qkv_proj", eager.project(x, weight), textbook)).verdict == "ok"
    assert compare(Computed("qkv_proj", wrong(x, weight), textbook)).verdict == "wrong"
