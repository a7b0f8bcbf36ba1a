"""The fused rope_kv_write against the eager one, bit for bit: interpreted on a CPU, compiled on a GPU (conftest.py)."""

from typing import Any

import pytest
import torch
from kernel_problems import SMALL, but, chunk, decode, prefill, title
from torch import Tensor

from kaudit_kernels import eager
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem
from kaudit_kernels.triton import launch

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned_outputs")

CASES: list[dict[str, Any]] = [
    prefill(5, kv_layout="contiguous"),
    prefill(4, kv_layout="ragged", rope="interleaved", q_heads=7, kv_heads=1, head_dim=64),
    prefill(3, kv_layout="contiguous", rope="none", head_dim=80, kv_dtype="int8"),
    chunk(3, 21, page_size=8, rope_scaling="llama3", rope_offset=131071, skew=True, batch=3, kv_dtype="fp8_e4m3"),
    chunk(3, 21, page_size=1, rope_scaling="yarn", rope="interleaved", head_dim=6, v_head_dim=10, kv_dtype="fp8_e5m2"),
    chunk(5, 21, kv_layout="ragged", rope="interleaved", head_dim=128, kv_dtype="int8"),
    decode(40, page_size=16, rope_scaling="linear", q_heads=33, kv_heads=11, head_dim=96),
    decode(40, page_size=16, head_dim=192, v_head_dim=128, q_heads=16, kv_heads=16, kv_dtype="fp8_e4m3"),
    decode(40, page_size=16, head_dim=256, q_heads=3, kv_heads=3, kv_dtype="fp8_e5m2", features="prefix_share"),
    decode(40, mask="tree", features="speculative_tree", head_dim=2, v_head_dim=1) | {"q_len": 7},
]


def _given(problem: Problem, device: str) -> tuple[Tensor, Inputs, Inputs]:
    """qkv, some of it beyond the reach of a quantised cache, and inputs with a cache of their own for each of two."""
    generator = torch.Generator(device).manual_seed(1)
    qkv = 4 * torch.randn(problem.tokens, problem.qkv_width, generator=generator, device=device)
    one, other = (make_inputs(problem, device, seed=0) for _ in range(2))
    return qkv.to(one.x.dtype), one, other


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize("changes", CASES, ids=title)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", pytest.param("bf16", marks=pytest.mark.gpu)])
def test_q_and_the_cache_have_the_bits_of_the_reference(changes: dict[str, Any], dtype: str, device: str) -> None:
    qkv, fused, plain = _given(but(SMALL, **changes, dtype=dtype), device)
    q, wanted = launch.rope_kv_write(qkv, fused), eager.rope_kv_write(qkv, plain)
    assert torch.equal(q, wanted)
    for found, expected in ((fused.cache.k, plain.cache.k), (fused.cache.v, plain.cache.v)):
        assert torch.equal(_bits(found), _bits(expected))  # the rows that are nobody's, too
