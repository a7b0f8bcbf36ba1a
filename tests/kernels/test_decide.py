"""decide() over the whole catalogue, for an imagined H200 and for a CPU. Nothing is launched."""

from typing import Any, get_args

import pytest
from attention_choices import ATTENTION
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_problems import BASE, but, title

from kaudit_kernels import problem as axes
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel, NoKernel, decide
from kaudit_kernels.engine import ARGUMENTS
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import sm


@pytest.mark.parametrize(("changes", "chosen", "rejected"), ATTENTION, ids=[title(case[0]) for case in ATTENTION])
def test_attention(changes: dict[str, Any], chosen: str, rejected: dict[str, list[str]]) -> None:
    decision = decide("attention", but(BASE, **changes), CATALOGUE)
    assert decision.chosen.name == chosen
    assert {each.kernel.name: [str(unmet) for unmet in each.unmet] for each in decision.rejected} == rejected


@pytest.mark.parametrize("op", ["rms_norm", "rope_kv_write", "add_rms_norm", "silu_mul"])
def test_token_ops_are_fused_on_a_gpu_whatever_attention_does(op: str) -> None:
    problem = but(BASE, mask="custom", features="sinks softcap grammar", kv_layout="contiguous")
    assert decide(op, problem, CATALOGUE).chosen.functions
    assert decide(op, but(problem, sm=0), CATALOGUE).chosen.name == "eager"


def test_a_row_that_registers_do_not_hold_is_not_fused() -> None:
    decision = decide("rms_norm", but(BASE, q_heads=192), CATALOGUE)
    assert decision.chosen.name == "eager"
    assert "fused_rms_norm (hidden=24576, needs at most 16384)" in map(str, decision.rejected)


def test_heads_that_do_not_divide_are_refused_with_the_reason_of_every_kernel() -> None:
    with pytest.raises(NoKernel) as caught:
        decide("attention", but(BASE, q_heads=33, kv_heads=2), CATALOGUE)
    assert [each.kernel.name for each in caught.value.rejected] == [each.name for each in CATALOGUE["attention"]]
    assert str(caught.value).count("kv_heads=2, needs a divisor of q_heads=33") == len(CATALOGUE["attention"])


def test_a_feature_that_no_kernel_names_is_denied_by_every_kernel() -> None:
    problem = but(BASE, features="bad_last_page")
    for op in CATALOGUE:
        with pytest.raises(NoKernel, match="features=bad_last_page, needs none"):
            decide(op, problem, CATALOGUE)


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [
        (
            0,
            {
                **dict.fromkeys(("cascade_decode", "warp_decode", "split_kv_decode", "flash_prefill"), "at least 80"),
                "flash_prefill_tma": "90",
            },
        ),
        (80, {"flash_prefill_tma": "90", "fused_sdpa": "at most 0"}),  # and 8-bit KV of some: that is no never
        (90, {"fused_sdpa": "at most 0"}),
    ],
)
def test_what_never_runs_on_a_device(capability: int, wanted: dict[str, str]) -> None:
    never = {each.name: each.never(capability) for each in CATALOGUE["attention"] if each.name in wanted}
    told = {name: [str(unmet) for unmet in lacking] for name, lacking in never.items()}
    assert told == {name: [f"sm={capability}, needs {needed}"] for name, needed in wanted.items()}


def test_a_kernel_that_says_nothing_of_features_takes_none() -> None:
    silent = {"op": (Kernel("silent", requires=(sm.at_least(80),), launch=len),)}
    assert decide("op", BASE, silent).chosen.name == "silent"
    with pytest.raises(NoKernel, match="features=grammar, needs none"):
        decide("op", but(BASE, features="grammar"), silent)


def test_every_op_that_runs_is_in_the_catalogue_and_the_other_way_round() -> None:
    assert list(ARGUMENTS) == list(CATALOGUE)


PROBLEMS = st.builds(
    Problem,
    phase=st.sampled_from(get_args(axes.Phase)),
    dtype=st.sampled_from(get_args(axes.DType)),
    weight_dtype=st.sampled_from(get_args(axes.WeightDType)),
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
