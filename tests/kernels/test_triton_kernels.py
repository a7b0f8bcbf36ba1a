"""The Triton kernels against the reference: interpreted on a CPU, compiled on a GPU (see conftest.py).

In bf16 they are tested on a GPU only (test_gpu_kernels.py): the interpreter truncates where it should round to bf16,
and its tl.dot is silently wrong there.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, chunk, decode, prefill, title
from torch import Tensor

from kaudit_kernels import eager, eager_attention
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.triton import launch

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned_outputs")

TINY = but(BASE, dtype="fp16", q_heads=4, kv_heads=2, head_dim=64, batch=2)

PREFILL: list[dict[str, Any]] = [
    prefill(1, kv_layout="contiguous"),
    prefill(63, kv_layout="contiguous"),
    prefill(64, kv_layout="ragged", mask="none"),
    prefill(65, kv_layout="ragged", skew=True, batch=3),
    prefill(129, page_size=16, mask="window", window=1),
    prefill(129, page_size=16, mask="window", window=64),
    prefill(130, kv_layout="contiguous", mask="window", window=65, q_heads=2, kv_heads=2),
    chunk(33, 100, page_size=8, skew=True),
    chunk(5, 67, kv_layout="contiguous"),  # the first query sees 63 keys: one too few for a block without a mask
    chunk(5, 68, kv_layout="contiguous"),
    chunk(2, 65, kv_layout="contiguous", mask="none", skew=True),
    chunk(40, 200, kv_layout="ragged", mask="window", window=20, skew=True, batch=4),
    chunk(17, 64, page_size=1, q_heads=7, kv_heads=1),
    chunk(70, 128, page_size=64, q_heads=3, kv_heads=3, head_dim=128),
    {"phase": "mixed", "q_len": 37, "kv_len": 90, "page_size": 16, "batch": 5, "skew": True},
    decode(70, page_size=5),
    decode(128, kv_layout="contiguous", q_heads=40, kv_heads=2),
    chunk(9, 150, page_size=16, features="prefix_share", batch=3),
]

DECODE: list[dict[str, Any]] = [
    decode(1),
    decode(15),
    decode(16),
    decode(17, page_size=32, mask="none"),
    decode(129, page_size=64, skew=True, batch=5),
    decode(600, q_heads=7, kv_heads=1),
    decode(777, page_size=48, mask="window", window=530, batch=3, skew=True),
    decode(520, page_size=16, mask="window", window=513),
    decode(1024, page_size=128, head_dim=128, batch=1),
    decode(1025, q_heads=16, kv_heads=1, skew=True, batch=3),
    decode(1100, features="prefix_share", q_heads=6, kv_heads=2),
]


def _attention_matches(kernel: Callable[[Tensor, Inputs], Tensor], changes: dict[str, Any], device: str) -> None:
    problem = but(TINY, **changes)
    inputs = make_inputs(problem, device, seed=0)
    generator = torch.Generator(device).manual_seed(1)
    qkv = torch.randn(problem.tokens, inputs.qkv.shape[1], generator=generator, device=device).to(inputs.x.dtype)
    q = eager.rope_kv_write(qkv, inputs)
    found, wanted = kernel(q, inputs), eager_attention.attention(q, inputs)
    # Half precision: weights are rounded before they meet V, and so is the result. Single: sums in another order.
    # The mean over many keys is small, so what counts as near is taken from the largest element.
    tolerance = {torch.float16: 2**-10, torch.float32: 1e-5}[inputs.x.dtype]
    torch.testing.assert_close(found, wanted, rtol=2 * tolerance, atol=tolerance * wanted.abs().max().item())


@pytest.mark.parametrize("changes", PREFILL, ids=title)
def test_flash_prefill(changes: dict[str, Any], device: str) -> None:
    _attention_matches(launch.flash_prefill, changes, device)


@pytest.mark.parametrize("changes", DECODE, ids=title)
def test_split_kv_decode(changes: dict[str, Any], device: str) -> None:
    _attention_matches(launch.split_kv_decode, changes, device)


@pytest.mark.parametrize("changes", [prefill(40, kv_layout="ragged"), chunk(20, 90, page_size=16)], ids=title)
def test_flash_prefill_is_exact_where_nothing_is_rounded(changes: dict[str, Any], device: str) -> None:
    if device == "cuda":
        pytest.skip("on a GPU tl.dot takes float32 as tf32: the catalogue denies it")
    _attention_matches(launch.flash_prefill, changes | {"dtype": "fp32"}, device)


def test_splits_fill_the_gpu_and_no_further() -> None:
    problem = but(BASE, **decode(131072, batch=1), sm_count=132)
    assert launch.split_count(problem) == 33  # two blocks for each of 132 SMs, over 8 KV heads
    assert launch.split_count(but(problem, kv_heads=1)) == launch.MAX_SPLITS
    assert launch.split_count(but(problem, kv_len=1024)) == 4
    assert launch.split_count(but(problem, kv_len=100)) == 1
    assert launch.split_count(but(problem, mask="window", window=512)) == 2
    assert launch.split_count(but(problem, batch=16)) == 3


@pytest.mark.parametrize("hidden", [1, 48, 1024, 2600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms(hidden: int, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    x, residual, weight = (torch.randn(3, hidden, device=device).to(dtype) for _ in range(3))
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(launch.rms_norm(x, weight[0]), eager.rms_norm(x, weight[0]), rtol=2 * unit, atol=1e-6)
    found, wanted = launch.add_rms_norm(x, residual, weight[0]), eager.add_rms_norm(x, residual, weight[0])
    assert torch.equal(found[1], wanted[1])
    torch.testing.assert_close(found[0], wanted[0], rtol=2 * unit, atol=1e-6)
