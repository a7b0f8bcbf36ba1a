"""Public reports of dispatch gone wrong, by their ids, asked of this dispatcher.

What a real engine's guard forgot is here an axis that a predicate looks at; so where a change of one axis loses a fast
kernel, the reasons name that axis, or the heads, lengths and pages that it moves. Nothing is launched but by B57.
"""

from itertools import pairwise
from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, chunk, decode, prefill, title

from kaudit_kernels import eager, eager_attention, graph
from kaudit_kernels.admission import Inadmissible, admit
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Decision, decide
from kaudit_kernels.engine import ops
from kaudit_kernels.inputs import make_inputs
from kaudit_kernels.problem import Problem
from kaudit_kernels.triton import launch_decode

SLOW = ("eager", "flash_prefill")
"""Of attention, what serves a decode only where nothing made for it does."""

MOVES: dict[str, set[str]] = {
    "batch": {"batch", "requests"},
    "features": {"features", "shared_mib"},
    "head_dim": {"head_dim", "v_head_dim"},
    "mask": {"mask", "features"},
    "q_heads": {"query_rows", "kv_heads"},
    "q_len": {"q_len", "query_rows"},
    "sm": {"sm", "sm_count"},
}
"""Axes of a requirement that a change of one axis moves, where it is not that axis alone."""


def _attention(**changes: Any) -> Decision:
    return decide("attention", but(BASE, **changes), CATALOGUE)


def _names(decision: Decision, *axes: str) -> bool:
    """Whether each faster kernel that BASE would not turn down is turned down for one of these axes, and no other."""
    moved = set().union(*(MOVES.get(axis, {axis}) for axis in axes))
    new = [
        {unmet.axis for unmet in rejected.unmet} - {unmet.axis for unmet in rejected.kernel.unmet(BASE)}
        for rejected in decision.rejected
    ]
    return all(axes <= moved for axes in new)


@pytest.mark.parametrize("head_dim", [64, 72, 80, 96, 128, 192, 256, 264, 512])
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8_e4m3", "fp8_e5m2", "int8"])
def test_b12_q_and_kv_of_two_dtypes_lose_a_kernel_in_words_only(head_dim: int, kv_dtype: str) -> None:
    decision = _attention(**decode(4096), head_dim=head_dim, kv_dtype=kv_dtype)
    assert _names(decision, "head_dim", "kv_dtype")
    if head_dim in (64, 80, 96, 128, 192, 256):
        assert decision.chosen.name not in SLOW


@pytest.mark.parametrize(
    "toggled",
    [
        {"mask": "window", "window": 1024},
        {"features": "grammar"},
        {"features": "prefix_share"},
        {"features": "sinks"},
        {"features": "softcap"},
        {"kv_dtype": "int8"},
        {"kv_dtype": "fp8_e4m3"},
        {"page_size": 64},
        {"page_size": 8},
        {"q_len": 2},
        {"skew": True},
    ],
    ids=str,
)
def test_b19_one_feature_more_takes_decode_off_no_fast_kernel_for_another_reason(toggled: dict[str, Any]) -> None:
    decision = _attention(**decode(4096) | toggled)
    assert decision.chosen.name not in SLOW
    assert _names(decision, *toggled)


def test_b20_the_kernel_changes_with_the_batch_only_where_a_reason_does() -> None:
    """A threshold that no reason names is a heuristic that nobody can see."""
    decisions = [_attention(**decode(4096), batch=batch) for batch in range(1, 130)]
    for smaller, larger in pairwise(decisions):
        if smaller.chosen != larger.chosen:
            assert smaller.rejected != larger.rejected
            assert _names(larger, "batch")


def _parts(problem: Problem) -> int:
    """Into which the keys of a request are split."""
    tile = launch_decode.tile_of(problem, problem.query_rows)
    return launch_decode.shares_of(problem, tile, launch_decode.unshared(problem, 0)).parts


def test_b21_a_split_grows_with_the_keys_and_counts_kv_heads() -> None:
    short, long = (_parts(but(BASE, **decode(kv_len), batch=1)) for kv_len in (256, 131_072))
    assert long > 8 * short
    few, many = (_parts(but(BASE, **decode(32_768), batch=1, q_heads=8 * group)) for group in (1, 4))
    assert few == many
    assert _parts(but(BASE, **decode(32_768), batch=1, kv_heads=1, q_heads=8)) > 1


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48])
@pytest.mark.parametrize("q_len", [1, 5])
def test_b54_any_number_of_heads_a_group_is_served_fast_or_turned_down_for_it(group: int, q_len: int) -> None:
    decision = _attention(**decode(4096) | {"q_len": q_len}, q_heads=2 * group, kv_heads=2)
    assert decision.chosen.name != "eager"
    assert _names(decision, "q_heads", "q_len")


@pytest.mark.parametrize("heads", [(33, 2), (3, 2)])
def test_b54_heads_that_do_not_divide_are_refused(heads: tuple[int, int]) -> None:
    with pytest.raises(Inadmissible, match=f"kv_heads={heads[1]}, needs a divisor of q_heads={heads[0]}"):
        admit(but(BASE, q_heads=heads[0], kv_heads=heads[1]))


B57 = but(BASE, dtype="fp16", q_heads=4, kv_heads=4, head_dim=64, page_size=256, batch=2, skew=True)
"""The report's: 4/4/64, pages of 256, two requests of unlike length; its bf16 is wrong in Triton's interpreter."""


@pytest.mark.usefixtures("poisoned_outputs")
@pytest.mark.parametrize("kv_len", [600, 1024, 1300])
def test_b57_a_split_over_unlike_lengths_writes_every_row(kv_len: int, device: str) -> None:
    pytest.importorskip("triton")
    problem = but(B57, kv_len=kv_len)
    assert _parts(problem) > 1
    inputs = make_inputs(problem, device, seed=0)
    q = eager.rope_kv_write(torch.randn(problem.tokens, problem.qkv_width, device=device).half(), inputs)
    found, wanted = launch_decode.split_kv_decode(q, inputs), eager_attention.attention(q.float(), inputs)
    torch.testing.assert_close(found.float(), wanted, rtol=2**-9, atol=2**-9 * wanted.abs().max().item())


def _without_tokens(decision: Decision) -> list[tuple[str, str, str, str]]:
    """Whom it turns down, and why; of tokens only what is needed."""
    return [
        (rejected.kernel.name, unmet.axis, unmet.needed, unmet.seen if unmet.axis != "tokens" else "")
        for rejected in decision.rejected
        for unmet in rejected.unmet
    ]


@pytest.mark.parametrize(
    "changes",
    [
        decode(64),
        decode(8193),
        decode(16_385, kv_dtype="fp8_e4m3"),
        decode(4096, mask="window", window=1024),
        decode(4096, dtype="fp32"),
        decode(1024, kv_layout="ragged", skew=True),
        prefill(512),
        chunk(64, 2048),
    ],
    ids=title,
)
@pytest.mark.parametrize("features", ["", "prefix_share", "prefix_share softcap sinks", "grammar top_k", "preempted"])
def test_b72_a_graph_and_what_fills_it_up_change_no_kernel(changes: dict[str, Any], features: str) -> None:
    """What is captured is what runs without. Attention is told of the requests, and a projection of all tokens."""
    for batch in range(1, 66):
        plain = but(BASE, **changes, batch=batch, features=features)
        launched = graph.launched(but(plain, features=f"cuda_graph {features}"))
        for op in ops(plain):
            alone, graphed = decide(op, plain, CATALOGUE), decide(op, launched, CATALOGUE)
            assert alone.chosen == graphed.chosen
            assert _without_tokens(alone) == _without_tokens(graphed)
            if op == "attention":
                assert alone.rejected == graphed.rejected


def test_b72_a_prefix_that_nine_requests_share_is_read_once_in_a_batch_of_sixteen() -> None:
    problem = but(BASE, **decode(8193), batch=9, features="cuda_graph prefix_share")
    assert graph.launched(problem).padding == 7
    assert decide("attention", graph.launched(problem), CATALOGUE).chosen.name == "cascade_decode"
    of_seven = decide("attention", graph.launched(but(problem, batch=7, features="cuda_graph prefix_share")), CATALOGUE)
    assert "requests=7, pays with at least 8" in str(of_seven)


@pytest.mark.parametrize(("sm", "sm_count"), [(80, 108), (89, 142), (90, 132), (100, 148), (120, 188)])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_gpu_with_less_shared_memory_takes_no_slow_kernel_unsaid(sm: int, sm_count: int, head_dim: int) -> None:
    """The kind of B54's fault on consumer Blackwell: sm_120 has 99 KiB a block where sm_90 has 227."""
    decision = _attention(**decode(4096), head_dim=head_dim, sm=sm, sm_count=sm_count)
    assert decision.chosen.name not in SLOW
    assert _names(decision, "head_dim", "sm")
