"""The decode kernels against the reference: interpreted on a CPU, compiled on a GPU (see conftest.py).

In bf16, and in CUDA C++, they are tested on a GPU only (test_gpu_kernels.py).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, decode, title
from nearness import near
from torch import Tensor

from kaudit_kernels import eager, eager_attention
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.masks import visible
from kaudit_kernels.problem import Problem
from kaudit_kernels.triton.launch_decode import (
    MIN_CHUNK,
    Shares,
    ancestry,
    cascade_decode,
    chunk_of,
    shares_of,
    split_kv_decode,
    tile_of,
    unshared,
)

pytestmark = pytest.mark.usefixtures("poisoned_outputs")

TINY = but(BASE, dtype="fp16", q_heads=4, kv_heads=2, head_dim=64, batch=2)


def speculative(q_len: int, kv_len: int, mask: str = "causal", **changes: Any) -> dict[str, Any]:
    return {"phase": "chunked_prefill", "q_len": q_len, "kv_len": kv_len, "mask": mask, **changes}


SPLIT: list[dict[str, Any]] = [
    decode(1),
    decode(15),
    decode(17, page_size=32, mask="none"),
    decode(129, page_size=64, skew=True, batch=5),
    decode(300, page_size=1),
    decode(300, page_size=8, head_dim=80, features="softcap sinks"),
    decode(600, q_heads=7, kv_heads=1, kv_dtype="int8"),
    decode(600, q_heads=48, kv_heads=1),
    decode(600, kv_dtype="fp8_e4m3", features="sinks"),
    decode(600, kv_dtype="fp8_e5m2", features="softcap"),
    decode(600, head_dim=192, v_head_dim=128, page_size=5),
    decode(777, page_size=48, mask="window", window=530, batch=3, skew=True),
    decode(520, mask="window", window=513, features="sinks"),
    decode(1025, q_heads=16, kv_heads=1, skew=True, batch=3, features="softcap sinks"),
    decode(1100, features="prefix_share", q_heads=6, kv_heads=2),
    decode(300, features="idle", batch=3),
    decode(300, features="vacant", batch=3),
    speculative(7, 600),
    speculative(8, 300, q_heads=16, kv_heads=1, batch=1),  # 128 rows: two tiles of them
    speculative(8, 600, "tree", features="speculative_tree"),
    speculative(3, 300, "tree", features="speculative_tree", skew=True, batch=3),
    # The first part holds keys that the first query sees and the last does not.
    speculative(5, 600, "window", window=520, q_heads=2),
    speculative(5, 40, "none", q_heads=2),
    {"phase": "mixed", "q_len": 6, "kv_len": 300, "batch": 3},
]

CASCADE: list[dict[str, Any]] = [
    decode(1100, features="prefix_share", q_heads=6),
    decode(35, features="prefix_share", page_size=1),
    decode(700, features="prefix_share sinks softcap", batch=5, skew=True, kv_dtype="fp8_e4m3"),
    speculative(4, 700, features="prefix_share", batch=9, page_size=32, q_heads=2, kv_heads=1),
    speculative(8, 700, "tree", features="prefix_share speculative_tree", kv_dtype="int8"),
]


def _matches(kernel: Callable[[Tensor, Inputs], Tensor], problem: Problem, device: str) -> None:
    inputs = make_inputs(problem, device, seed=0)
    generator = torch.Generator(device).manual_seed(1)
    qkv = torch.randn(problem.tokens, inputs.qkv.shape[1], generator=generator, device=device).to(inputs.x.dtype)
    q = eager.rope_kv_write(qkv, inputs)
    near(kernel(q, inputs), eager_attention.attention(q, inputs), token=2)


@pytest.mark.parametrize("changes", SPLIT, ids=title)
def test_split_kv_decode(changes: dict[str, Any], device: str) -> None:
    pytest.importorskip("triton")
    _matches(split_kv_decode, but(TINY, **changes), device)


@pytest.mark.parametrize("changes", CASCADE, ids=title)
def test_cascade_decode(changes: dict[str, Any], device: str) -> None:
    pytest.importorskip("triton")
    _matches(cascade_decode, but(TINY, **changes), device)


def test_the_prefix_is_read_from_the_first_requests_pages_alone(device: str) -> None:
    pytest.importorskip("triton")
    problem = but(TINY, **decode(200, features="prefix_share", batch=3))
    inputs = make_inputs(problem, device, seed=0)
    q = torch.randn(problem.tokens, problem.q_heads, problem.head_dim, device=device).to(inputs.x.dtype)
    inputs.cache.k.nan_to_num_(0.0)
    inputs.cache.v.nan_to_num_(0.0)
    wanted = cascade_decode(q, inputs)
    # Other requests' tables of the shared pages now lead astray: to a page that is nobody's.
    inputs.cache.page_table[1:, : problem.shared_prefix // problem.page_size] = inputs.cache.page_table[0, -1]
    assert problem.shared_prefix == 96
    assert torch.equal(cascade_decode(q, inputs), wanted)
    assert not torch.equal(split_kv_decode(q, inputs), wanted)


def _shares(**changes: Any) -> Shares:
    problem = but(BASE, **changes)
    return shares_of(problem, tile_of(problem, problem.query_rows), unshared(problem, problem.shared_prefix))


def test_parts_fill_the_gpu_and_no_further() -> None:
    # 132 SMs with 8 programs each, over 8 KV heads, are 132 parts of all requests together.
    assert _shares(**decode(131072, batch=1)) == Shares(wanted=132, step=64, parts=128, whole=False)
    assert _shares(**decode(4096, batch=64)) == Shares(wanted=132, step=64, parts=128, whole=False)
    assert _shares(**decode(131072, batch=1, kv_heads=1)).parts == 131072 // MIN_CHUNK
    assert _shares(**decode(4096, batch=512)).whole
    assert _shares(**decode(MIN_CHUNK)) == Shares(wanted=132, step=64, parts=8, whole=True)
    assert _shares(**decode(4096, mask="window", window=512, batch=1)).parts == 2
    assert _shares(**decode(4096, features="prefix_share", batch=2)).parts == 2 * 9  # of 2,064 keys each


def test_long_requests_have_more_parts_and_not_longer_ones() -> None:
    problem = but(BASE, **decode(8192, batch=4, skew=True))
    shares = _shares(**decode(8192, batch=4, skew=True))
    assert problem.kv_lens == (8192, 6144, 4096, 2048)
    assert chunk_of(sum(problem.kv_lens), shares.wanted, shares.step) == 256
    assert shares.parts == sum(problem.kv_lens) // 256


def test_parts_are_whole_tiles() -> None:
    for kv_dtype in ("bf16", "int8"):
        for head_dim in (64, 80, 192, 256):
            problem = but(BASE, **decode(5000), kv_dtype=kv_dtype, head_dim=head_dim)
            tile = tile_of(problem, problem.query_rows)
            shares = shares_of(problem, tile, [5000] * 8)
            assert shares.step == tile.block_n
            assert chunk_of(8 * 5000, shares.wanted, shares.step) % tile.block_n == 0
            assert 16 <= tile.block_n <= 128


@pytest.mark.parametrize("q_len", [2, 5, 8])
def test_a_tree_is_told_in_64_bits(q_len: int) -> None:
    bits = ancestry(but(BASE, **speculative(q_len, 64, "tree", features="speculative_tree")))
    assert -(2**63) <= bits < 2**63
    sees = [[bool(bits >> (8 * i + j) & 1) for j in range(q_len)] for i in range(q_len)]
    assert sees == visible("tree", 0, q_len, q_len, 0).tolist()


def test_no_tree_is_told_where_there_is_none() -> None:
    assert ancestry(but(BASE, **speculative(8, 64))) == 0
    assert ancestry(replace(BASE, mask="tree")) == 0
