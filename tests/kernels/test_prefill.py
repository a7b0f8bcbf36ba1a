"""The prefill kernels against the reference: interpreted on a CPU, compiled on a GPU (see conftest.py).

In bf16 they are tested on a GPU only: the interpreter truncates where it should round to bf16, and its tl.dot is
silently wrong there. So is flash_prefill_tma, which is Gluon: that has no interpreter.
"""

from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, chunk, decode, prefill, title
from nearness import near
from torch import Tensor

from kaudit_kernels import eager, eager_attention
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.engine import device_facts
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.masks import Masks
from kaudit_kernels.triton import launch_prefill as launch

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
    *(chunk(20, 90, head_dim=dim, kv_layout="ragged") for dim in (8, 80, 96, 256)),
    chunk(20, 90, head_dim=192, v_head_dim=128),
    chunk(20, 90, head_dim=64, v_head_dim=96, mask="window", window=7),
    chunk(20, 90, features="softcap"),
    chunk(20, 90, features="sinks", skew=True),
    prefill(70, features="softcap sinks", mask="window", window=3, kv_layout="contiguous"),
    prefill(70, mask="custom", kv_layout="contiguous"),
    chunk(33, 100, mask="custom", page_size=8, skew=True, batch=3, features="sinks"),
    chunk(31, 200, mask="tree", features="speculative_tree"),
    chunk(7, 67, mask="tree", features="speculative_tree softcap", skew=True, batch=3, q_heads=7, kv_heads=1),
    decode(70, mask="tree", features="speculative_tree"),
    *(chunk(20, 90, kv_dtype=kv_dtype, skew=True) for kv_dtype in ("int8", "fp8_e4m3", "fp8_e5m2")),
    chunk(20, 90, kv_dtype="int8", head_dim=80, kv_layout="contiguous", features="softcap sinks"),
    chunk(20, 90, features="idle", batch=3),
    chunk(20, 90, features="vacant", batch=3, mask="custom"),
]

TMA: list[dict[str, Any]] = [
    prefill(128, kv_layout="contiguous"),
    prefill(1000, kv_layout="contiguous", batch=40),  # several tiles a program, in both directions
    prefill(513, kv_layout="contiguous", mask="none", q_heads=7, kv_heads=1),
    prefill(2048, kv_layout="ragged", skew=True, batch=3),
    prefill(777, page_size=128, mask="window", window=100),
    chunk(200, 1500, page_size=256, skew=True, batch=3),
    chunk(300, 4000, kv_layout="contiguous", mask="window", window=1),
    chunk(130, 1000, kv_layout="ragged", mask="window", window=333, skew=True, batch=4),
    {"phase": "mixed", "q_len": 100, "kv_len": 900, "batch": 6, "skew": True, "page_size": 128},
    chunk(200, 1000, kv_layout="ragged", features="idle", batch=3),
    chunk(200, 1000, page_size=128, features="vacant", batch=3),
]


def _given(changes: dict[str, Any], device: str) -> tuple[Tensor, Inputs]:
    problem = but(TINY, **changes)
    inputs = make_inputs(problem, device, seed=0)
    generator = torch.Generator(device).manual_seed(1)
    qkv = torch.randn(problem.tokens, inputs.qkv.shape[1], generator=generator, device=device).to(inputs.x.dtype)
    return eager.rope_kv_write(qkv, inputs), inputs


@pytest.mark.parametrize("changes", PREFILL, ids=title)
def test_flash_prefill(changes: dict[str, Any], device: str) -> None:
    q, inputs = _given(changes, device)
    near(launch.flash_prefill(q, inputs), eager_attention.attention(q, inputs), token=2)


@pytest.mark.gpu
@pytest.mark.parametrize("changes", PREFILL, ids=title)
def test_flash_prefill_in_bf16(changes: dict[str, Any]) -> None:
    q, inputs = _given({"kv_dtype": "bf16", **changes, "dtype": "bf16"}, "cuda")
    near(launch.flash_prefill(q, inputs), eager_attention.attention(q, inputs), token=2)


@pytest.mark.parametrize("changes", [prefill(40, kv_layout="ragged"), chunk(20, 90, page_size=16)], ids=title)
def test_flash_prefill_is_exact_where_nothing_is_rounded(changes: dict[str, Any], device: str) -> None:
    if device == "cuda":
        pytest.skip("on a GPU tl.dot takes float32 as tf32: the catalogue denies it")
    q, inputs = _given(changes | {"dtype": "fp32"}, device)
    near(launch.flash_prefill(q, inputs), eager_attention.attention(q, inputs), token=2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("head_dim", launch.TMA_TILES)
@pytest.mark.parametrize("changes", TMA, ids=title)
def test_flash_prefill_tma(changes: dict[str, Any], head_dim: int, dtype: str) -> None:
    sm, sm_count = device_facts("cuda")
    if sm != 90:
        pytest.skip("needs a Hopper")
    q, inputs = _given({**changes, "dtype": dtype, "head_dim": head_dim, "sm": sm, "sm_count": sm_count}, "cuda")
    (kernel,) = [each for each in CATALOGUE["attention"] if each.name == "flash_prefill_tma"]
    assert all(unmet.worth for unmet in kernel.unmet(inputs.problem))  # it is slower at head dim 64, and right
    found = launch.flash_prefill_tma(q, inputs)
    near(found, eager_attention.attention(q, inputs), token=2)
    assert torch.equal(found, launch.flash_prefill_tma(q, inputs))


def test_a_hidden_key_weighs_nothing_beside_scores_at_the_cap(device: str) -> None:
    q, inputs = _given(prefill(9, kv_layout="contiguous", features="softcap"), device)
    inputs.cache.k.fill_(1)
    near(launch.flash_prefill(q.fill_(-100), inputs), eager_attention.attention(q, inputs), token=2)


def test_packed_masks_are_the_masks() -> None:
    for mask, features in (("custom", ""), ("tree", "speculative_tree")):
        problem = but(TINY, **chunk(13, 45, mask=mask, features=features, skew=True, batch=4))
        masks = Masks(problem, "cpu", seed=3)
        packed = masks.packed()
        assert packed is masks.packed()
        for request, (q_len, kv_len) in enumerate(zip(problem.q_lens, problem.kv_lens, strict=True)):
            keys = q_len if mask == "tree" else kv_len
            octets = packed.bits[packed.start[request] :][: q_len * -(-keys // 8)].view(q_len, -1)
            bits = octets[:, torch.arange(keys) // 8] >> (torch.arange(keys) % 8) & 1
            wanted = masks.of(request)
            assert torch.equal(bits.bool(), torch.ones(q_len, keys).bool() if wanted is None else wanted[:, -keys:])


def test_tiles_shrink_with_the_rows() -> None:
    rows = {changes["q_len"]: launch.tile_of(but(BASE, **changes)) for changes in map(prefill, (4, 5, 16, 17))}
    assert [tile.block_m for tile in rows.values()] == [16, 64, 64, 128]
    assert launch.tile_of(but(BASE, **prefill(17), head_dim=80)) == launch.TILES[128]
    assert launch.tile_of(but(BASE, **prefill(17), head_dim=192, v_head_dim=128)) == launch.WIDE
    assert launch.tile_of(but(BASE, **prefill(17), head_dim=192, v_head_dim=128, sm=120)) == launch.TILES[256]


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"sm": 100}, ["sm=100, needs 90"]),
        ({"head_dim": 80}, ["head_dim=80, needs one of 64, 128, 256", "head_dim=80, pays with at least 128"]),
        ({"head_dim": 64}, ["head_dim=64, pays with at least 128"]),
        ({"head_dim": 256, "v_head_dim": 128}, ["v_head_dim=128, needs the same as head_dim=256"]),
        ({"kv_dtype": "int8"}, ["kv_dtype=int8, needs the same as dtype=bf16"]),
        ({"kv_layout": "paged", "page_size": 64}, ["page_size=64, needs a multiple of 128 for head_dim=128"]),
        (
            {"kv_layout": "paged", "page_size": 32, "head_dim": 256},
            ["page_size=32, needs a multiple of 64 for head_dim=256"],
        ),
        ({"mask": "custom"}, ["mask=custom, needs one of none, causal, window"]),
        ({"features": "sinks softcap"}, ["features=sinks+softcap, needs none of these"]),
        ({"q_len": 31}, ["query_rows=124, pays with at least 128"]),
    ],
)
def test_what_the_hopper_kernel_turns_down_the_other_takes(changes: dict[str, Any], reasons: list[str]) -> None:
    problem = but(BASE, **{**prefill(4096, kv_layout="contiguous"), **changes})
    decision = decide("attention", problem, CATALOGUE)
    assert decision.chosen.name == "flash_prefill"
    (unmet,) = [each.unmet for each in decision.rejected if each.kernel.name == "flash_prefill_tma"]
    assert all(str(found).startswith(reason) for found, reason in zip(unmet, reasons, strict=True))


@pytest.mark.parametrize("head_dim", launch.TMA_TILES)
def test_a_page_holds_whole_blocks_of_keys(head_dim: int) -> None:
    def lacking(page_size: int) -> str:
        problem = but(BASE, **prefill(4096, page_size=page_size, head_dim=head_dim))
        (kernel,) = (each for each in CATALOGUE["attention"] if each.name == "flash_prefill_tma")
        return "; ".join(str(unmet) for unmet in kernel.unmet(problem) if not unmet.worth)

    keys = launch.TMA_TILES[head_dim].block_n
    assert lacking(keys) == lacking(2 * keys) == ""
    assert lacking(keys // 2) == f"page_size={keys // 2}, needs a multiple of {keys} for head_dim={head_dim}"


@pytest.mark.parametrize(
    "changes", [{"sm": 86, "kv_dtype": "fp8_e4m3"}, {"head_dim": 320}, {"features": "sliced"}, {"batch": 65_536}]
)
def test_what_no_prefill_kernel_takes(changes: dict[str, Any]) -> None:
    assert decide("attention", but(BASE, **prefill(100), **changes), CATALOGUE).chosen.name == "eager"
