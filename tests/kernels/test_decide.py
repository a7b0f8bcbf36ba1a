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

UNSHARED = {"cascade_decode": ["shared_mib=0, pays with at least 16"]}
BOTH_BEFORE = UNSHARED | {"warp_decode": ["kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8"]}


def _unshared(kv_dtype: str) -> dict[str, list[str]]:
    """As UNSHARED, with a cache of 8 bits."""
    return {"cascade_decode": [*UNSHARED["cascade_decode"], f"kv_dtype={kv_dtype}, pays with one of fp16, bf16"]}


ATTENTION: list[tuple[dict[str, Any], str, dict[str, list[str]]]] = [
    (decode(4096), "split_kv_decode", BOTH_BEFORE),
    (decode(512, mask="none"), "split_kv_decode", BOTH_BEFORE),
    (
        decode(4096, mask="window", window=512, page_size=8),
        "split_kv_decode",
        {
            "cascade_decode": [
                "mask=window, needs one of none, causal, tree",
                "shared_mib=0, pays with at least 16",
            ],
            "warp_decode": ["kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8"],
        },
    ),
    (decode(8193, features="prefix_share grammar"), "cascade_decode", {}),
    (
        decode(8192, features="prefix_share", batch=7),  # a page less, and a request
        "split_kv_decode",
        BOTH_BEFORE | {"cascade_decode": ["requests=7, pays with at least 8", "shared_mib=15, pays with at least 16"]},
    ),
    (
        decode(16_385, features="prefix_share", kv_dtype="fp8_e4m3"),  # as many bytes as are enough of bf16
        "warp_decode",
        {"cascade_decode": ["kv_dtype=fp8_e4m3, pays with one of fp16, bf16"]},
    ),
    (decode(4096, kv_dtype="int8", page_size=1, features="sinks softcap"), "warp_decode", _unshared("int8")),
    (
        decode(4096, kv_dtype="fp8_e4m3", head_dim=80),
        "split_kv_decode",
        _unshared("fp8_e4m3") | {"warp_decode": ["head_dim=80, needs one of 64, 128, 256"]},
    ),
    (
        decode(4096, q_heads=48, kv_heads=1),
        "split_kv_decode",
        UNSHARED
        | {
            "warp_decode": [
                "query_rows=48, needs at most 8",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ]
        },
    ),
    (
        {"q_len": 8, "kv_len": 4096, "mask": "tree", "features": "speculative_tree", "kv_dtype": "fp8_e5m2"},
        "split_kv_decode",
        _unshared("fp8_e5m2")
        | {
            "warp_decode": [
                "query_rows=32, needs at most 8",
                "mask=tree, needs one of none, causal, window",
                "features=speculative_tree, needs none of these",
            ]
        },
    ),
    (
        {"q_len": 8, "kv_len": 4096, "q_heads": 48, "kv_heads": 1},
        "flash_prefill",
        UNSHARED
        | {
            "warp_decode": [
                "query_rows=384, needs at most 8",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": ["query_rows=384, pays with at most 256"],
            "flash_prefill_tma": ["page_size=16, needs a multiple of 128 for head_dim=128"],
        },
    ),
    (
        chunk(128, 4096, kv_layout="ragged"),
        "flash_prefill_tma",
        {
            "cascade_decode": [
                "kv_layout=ragged, needs paged",
                "q_len=128, needs at most 8",
                "shared_mib=0, pays with at least 16",
            ],
            "warp_decode": [
                "query_rows=512, needs at most 8",
                "kv_layout=ragged, needs paged",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": [
                "kv_layout=ragged, needs paged",
                "q_len=128, needs at most 8",
                "query_rows=512, pays with at most 256",
            ],
        },
    ),
    (
        decode(4096, kv_layout="contiguous"),
        "flash_prefill",
        {
            "cascade_decode": ["kv_layout=contiguous, needs paged", "shared_mib=0, pays with at least 16"],
            "warp_decode": [
                "kv_layout=contiguous, needs paged",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": ["kv_layout=contiguous, needs paged"],
            "flash_prefill_tma": ["query_rows=4, pays with at least 128"],
        },
    ),
    (
        decode(4096, kv_dtype="fp8_e4m3", sm=86),
        "eager",
        {
            "cascade_decode": [
                "sm=86, needs at least 89 for kv_dtype=fp8_e4m3",
                "shared_mib=0, pays with at least 16",
                "kv_dtype=fp8_e4m3, pays with one of fp16, bf16",
            ],
            "warp_decode": ["sm=86, needs at least 89 for kv_dtype=fp8_e4m3"],
            "split_kv_decode": ["sm=86, needs at least 89 for kv_dtype=fp8_e4m3"],
            "flash_prefill_tma": [
                "sm=86, needs 90",
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "page_size=16, needs a multiple of 128 for head_dim=128",
                "query_rows=4, pays with at least 128",
            ],
            "flash_prefill": ["sm=86, needs at least 89 for kv_dtype=fp8_e4m3"],
            "fused_sdpa": [
                "sm=86, needs at most 0",
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "kv_layout=paged, needs one of contiguous, ragged",
            ],
        },
    ),
    (
        decode(4096, kv_dtype="fp8_e5m2", sm=86),
        "split_kv_decode",
        _unshared("fp8_e5m2") | {"warp_decode": ["sm=86, needs at least 89 for kv_dtype=fp8_e5m2"]},
    ),
    (
        prefill(64, sm=0, sm_count=0, kv_layout="contiguous"),
        "fused_sdpa",
        {
            "cascade_decode": [
                "sm=0, needs at least 80",
                "kv_layout=contiguous, needs paged",
                "q_len=64, needs at most 8",
                "shared_mib=0, pays with at least 16",
            ],
            "warp_decode": [
                "sm=0, needs at least 80",
                "query_rows=256, needs at most 8",
                "kv_layout=contiguous, needs paged",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": [
                "sm=0, needs at least 80",
                "kv_layout=contiguous, needs paged",
                "q_len=64, needs at most 8",
            ],
            "flash_prefill_tma": ["sm=0, needs 90"],
            "flash_prefill": ["sm=0, needs at least 80"],
        },
    ),
]


@pytest.mark.parametrize(("changes", "chosen", "rejected"), ATTENTION, ids=[title(case[0]) for case in ATTENTION])
def test_attention(changes: dict[str, Any], chosen: str, rejected: dict[str, list[str]]) -> None:
    decision = decide("attention", but(BASE, **changes), CATALOGUE)
    assert decision.chosen.name == chosen
    assert {each.kernel.name: [str(unmet) for unmet in each.unmet] for each in decision.rejected} == rejected


@pytest.mark.parametrize("op", ["rms_norm", "rope_kv_write", "add_rms_norm", "silu_mul"])
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
    never = {each.name: each.never(capability) for each in CATALOGUE["attention"]}
    told = {name: [str(unmet) for unmet in lacking] for name, lacking in never.items() if lacking}
    assert told == {name: [f"sm={capability}, needs {needed}"] for name, needed in wanted.items()}


def test_a_kernel_that_says_nothing_of_features_takes_none() -> None:
    silent = {"op": (Kernel("silent", requires=(sm.at_least(80),), launch=len),)}
    assert decide("op", BASE, silent).chosen.name == "silent"
    with pytest.raises(NoKernel, match="features=grammar, needs none"):
        decide("op", but(BASE, features="grammar"), silent)


def test_every_op_that_runs_is_in_the_catalogue_and_the_other_way_round() -> None:
    assert list(ARGUMENTS) == list(CATALOGUE)


def test_every_kernel_is_chosen_for_some_problem() -> None:
    problems = [but(BASE, **changes) for changes, _, _ in ATTENTION] + [but(BASE, weight_dtype="fp8_e4m3")]
    chosen = {(op, decide(op, problem, CATALOGUE).chosen.name) for op in CATALOGUE for problem in problems}
    assert chosen == {(op, kernel.name) for op, kernels in CATALOGUE.items() for kernel in kernels}


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
