"""decide() over the whole catalogue, for an imagined H200 and for a CPU. Nothing is launched."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_problems import BASE, but, chunk, decode, prefill, title

from kaudit_kernels import problem as axes
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel, NoKernel, decide
from kaudit_kernels.engine import ARGUMENTS
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import sm

ATTENTION: list[tuple[dict[str, Any], str, dict[str, list[str]]]] = [
    (decode(4096), "split_kv_decode", {}),
    (decode(512, mask="none"), "split_kv_decode", {}),
    (decode(4096, mask="window", window=512), "split_kv_decode", {}),
    (decode(4096, features="prefix_share grammar"), "split_kv_decode", {}),
    (
        decode(4096, page_size=8),
        "flash_prefill",
        {"split_kv_decode": ["page_size=8, needs a multiple of 16"]},
    ),
    (
        decode(511, batch=17),
        "flash_prefill",
        {
            "split_kv_decode": [
                "visible_keys=511, pays with at least 512",
                "tiles=136, pays with at most sm_count=132",
            ]
        },
    ),
    (
        chunk(128, 4096, kv_layout="ragged"),
        "flash_prefill",
        {"split_kv_decode": ["kv_layout=ragged, needs paged", "q_len=128, needs at most 1"]},
    ),
    (
        decode(4096, q_heads=48, kv_heads=1),
        "flash_prefill",
        {"split_kv_decode": ["group=48, needs at most 16"]},
    ),
    (
        decode(4096, head_dim=256, v_head_dim=128, kv_dtype="fp8_e4m3", features="sinks softcap"),
        "eager",
        {
            "split_kv_decode": [
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "head_dim=256, needs one of 64, 128",
                "v_head_dim=128, needs the same as head_dim=256",
                "features=sinks+softcap, needs none but prefix_share, grammar",
            ],
            "flash_prefill": [
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "head_dim=256, needs one of 64, 128",
                "v_head_dim=128, needs the same as head_dim=256",
                "features=sinks+softcap, needs none but prefix_share, grammar",
            ],
            "fused_sdpa": [
                "sm=90, needs at most 0",
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "v_head_dim=128, needs the same as head_dim=256",
                "kv_layout=paged, needs one of contiguous, ragged",
                "features=sinks+softcap, needs none but grammar, speculative_tree",
            ],
        },
    ),
    (
        prefill(64, sm=0, sm_count=0, kv_layout="contiguous"),
        "fused_sdpa",
        {
            "split_kv_decode": [
                "sm=0, needs at least 80",
                "kv_layout=contiguous, needs paged",
                "q_len=64, needs at most 1",
                "visible_keys=64, pays with at least 512",
                "tiles=64, pays with at most sm_count=0",
            ],
            "flash_prefill": ["sm=0, needs at least 80"],
        },
    ),
]


@pytest.mark.parametrize(("changes", "chosen", "rejected"), ATTENTION, ids=[title(case[0]) for case in ATTENTION])
def test_attention(changes: dict[str, Any], chosen: str, rejected: dict[str, list[str]]) -> None:
    decision = decide("attention", but(BASE, **changes), CATALOGUE)
    assert decision.chosen.name == chosen
    assert {each.kernel.name: [str(unmet) for unmet in each.unmet] for each in decision.rejected} == rejected


@pytest.mark.parametrize("op", ["rms_norm", "add_rms_norm", "silu_mul"])
def test_token_ops_are_fused_on_a_gpu_whatever_attention_does(op: str) -> None:
    problem = but(BASE, mask="custom", features="sinks softcap grammar", kv_layout="contiguous")
    assert decide(op, problem, CATALOGUE).rejected == ()
    assert decide(op, but(problem, sm=0), CATALOGUE).chosen.name == "eager"


def test_a_row_that_registers_do_not_hold_is_not_fused() -> None:
    decision = decide("rms_norm", but(BASE, q_heads=192), CATALOGUE)
    assert str(decision) == "rms_norm: eager, not fused_rms_norm (hidden=24576, needs at most 16384)"


def test_heads_that_do_not_divide_are_refused_with_the_reason_of_every_kernel() -> None:
    with pytest.raises(NoKernel) as caught:
        decide("attention", but(BASE, q_heads=33, kv_heads=2), CATALOGUE)
    assert [each.kernel.name for each in caught.value.rejected] == [each.name for each in CATALOGUE["attention"]]
    assert str(caught.value).count("kv_heads=2, needs a divisor of q_heads=33") == len(CATALOGUE["attention"])


def test_a_feature_that_no_kernel_names_is_denied_by_every_kernel() -> None:
    problem = but(BASE, features="cuda_graph")
    for op in CATALOGUE:
        with pytest.raises(NoKernel, match="features=cuda_graph, needs none"):
            decide(op, problem, CATALOGUE)


def test_a_kernel_that_says_nothing_of_features_takes_none() -> None:
    silent = {"op": (Kernel("silent", requires=(sm.at_least(80),), launch=len),)}
    assert decide("op", BASE, silent).chosen.name == "silent"
    with pytest.raises(NoKernel, match="features=grammar, needs none"):
        decide("op", but(BASE, features="grammar"), silent)


def test_every_op_that_runs_is_in_the_catalogue_and_the_other_way_round() -> None:
    assert list(ARGUMENTS) == list(CATALOGUE)


def test_every_kernel_is_chosen_for_some_problem() -> None:
    problems = [but(BASE, **changes) for changes, _, _ in ATTENTION]
    chosen = {(op, decide(op, problem, CATALOGUE).chosen.name) for op in CATALOGUE for problem in problems}
    assert chosen == {(op, kernel.name) for op, kernels in CATALOGUE.items() for kernel in kernels}


PROBLEMS = st.builds(
    Problem,
    phase=st.sampled_from(get_args(axes.Phase)),
    dtype=st.sampled_from(get_args(axes.DType)),
    kv_dtype=st.sampled_from(get_args(axes.KvDType)),
    q_heads=st.sampled_from((8, 28, 32)),
    kv_heads=st.sampled_from((1, 3, 4, 8)),
    head_dim=st.sampled_from((64, 80, 128, 256)),
    v_head_dim=st.sampled_from((64, 128)),
    kv_layout=st.sampled_from(get_args(axes.KvLayout)),
    page_size=st.sampled_from((0, 1, 8, 16, 64)),
    mask=st.sampled_from(get_args(axes.Mask)),
    window=st.sampled_from((1, 1024)),
    rope=st.sampled_from(get_args(axes.Rope)),
    rope_scaling=st.sampled_from(get_args(axes.RopeScaling)),
    rope_offset=st.just(0),
    features=st.frozensets(st.sampled_from(("prefix_share", "speculative_tree", "grammar", "softcap", "sinks"))),
    batch=st.integers(1, 64),
    q_len=st.integers(1, 64),
    kv_len=st.integers(64, 8192),
    skew=st.booleans(),
    sm=st.sampled_from((0, 75, 80, 90, 120)),
    sm_count=st.just(132),
)


@settings(deadline=None)
@given(PROBLEMS, st.sampled_from(sorted(CATALOGUE)))
def test_the_first_kernel_that_takes_a_problem_is_chosen_and_each_before_it_has_all_its_reasons(
    problem: Problem, op: str
) -> None:
    try:
        decision = decide(op, problem, CATALOGUE)
        rejected, candidates = decision.rejected, (*(each.kernel for each in decision.rejected), decision.chosen)
        assert decision.chosen.unmet(problem) == ()
    except NoKernel as refusal:
        rejected, candidates = refusal.rejected, CATALOGUE[op]
    assert candidates == CATALOGUE[op][: len(candidates)]
    for each in rejected:
        broken = [needed.axis for needed in each.kernel.requires if needed.check(problem)]
        slow = [worth.axis for worth in each.kernel.worth if worth.check(problem)]
        assert [unmet.axis for unmet in each.unmet] == [*broken, *slow]
        assert [unmet.worth for unmet in each.unmet] == [False] * len(broken) + [True] * len(slow)
        assert each.unmet
