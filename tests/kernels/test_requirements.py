"""One object is the check, the message and the documentation of a requirement."""

from typing import get_args

import pytest
from kernel_problems import BASE, but

from kaudit import cell
from kaudit_kernels import requirements as need
from kaudit_kernels.problem import Feature, Problem
from kaudit_kernels.requirements import Requirement

FEATURES = get_args(Feature)

CASES = [
    (need.sm.at_least(80), but(BASE, sm=75), "sm is at least 80", "sm=75, needs at least 80"),
    (need.batch.at_most(16), but(BASE, batch=32), "batch is at most 16", "batch=32, needs at most 16"),
    (
        need.sm.at_least(89).when(need.kv_dtype.one_of("fp8_e4m3", "fp8_e5m2")),
        but(BASE, sm=86, kv_dtype="fp8_e4m3"),
        "sm is at least 89 when kv_dtype is one of fp8_e4m3, fp8_e5m2",
        "sm=86, needs at least 89 for kv_dtype=fp8_e4m3",
    ),
    (
        need.page_size.multiple_of(16),
        but(BASE, page_size=8),
        "page_size is a multiple of 16",
        "page_size=8, needs a multiple of 16",
    ),
    (
        need.dtype.one_of("fp16", "bf16"),
        but(BASE, dtype="fp32"),
        "dtype is one of fp16, bf16",
        "dtype=fp32, needs one of fp16, bf16",
    ),
    (need.head_dim.one_of(64, 128), but(BASE, head_dim=256), None, "head_dim=256, needs one of 64, 128"),
    (
        need.kv_layout.one_of("paged"),
        but(BASE, kv_layout="ragged"),
        "kv_layout is paged",
        "kv_layout=ragged, needs paged",
    ),
    (
        need.kv_heads.divides("q_heads"),
        but(BASE, kv_heads=3),
        "kv_heads is a divisor of q_heads",
        "kv_heads=3, needs a divisor of q_heads=32",
    ),
    (
        need.kv_dtype.same_as("dtype"),
        but(BASE, kv_dtype="int8"),
        "kv_dtype is the same as dtype",
        "kv_dtype=int8, needs the same as dtype=bf16",
    ),
    (
        need.features.only("grammar"),
        but(BASE, features="sinks grammar softcap"),
        "features is none but grammar",
        "features=sinks+softcap, needs none of these",
    ),
    (
        need.features.only(*FEATURES[:-2]),
        but(BASE, features="bad_last_page grammar"),
        "features is any but stale_branch, bad_last_page",
        "features=bad_last_page, needs none of these",
    ),
    (need.features.only(), but(BASE, features="sinks"), "features is none", "features=sinks, needs none of these"),
]


@pytest.mark.parametrize(("requirement", "problem", "documentation", "message"), CASES)
def test_what_is_not_met_says_so(
    requirement: Requirement, problem: Problem, documentation: str | None, message: str
) -> None:
    assert str(requirement.check(problem)) == message
    assert documentation is None or str(requirement) == documentation


@pytest.mark.parametrize("requirement", [case[0] for case in CASES])
def test_what_is_met_says_nothing(requirement: Requirement) -> None:
    assert requirement.check(but(BASE, batch=1)) is None


def test_a_worth_reads_as_one() -> None:
    unmet = need.shared_mib.at_least(512).check(BASE, worth=True)
    assert unmet is not None
    assert unmet.worth
    assert str(unmet) == "shared_mib=0, pays with at least 512"


def test_what_is_asked_when_something_else_holds_is_not_asked_otherwise() -> None:
    needed = need.page_size.multiple_of(64).when(need.head_dim.at_least(256))
    assert needed.check(but(BASE, head_dim=128)) is None
    assert needed.check(but(BASE, head_dim=256, page_size=64)) is None
    assert str(needed.check(but(BASE, head_dim=256))) == "page_size=16, needs a multiple of 64 for head_dim=256"
    assert needed.bounds == (64,)


def test_what_is_asked_when_several_others_hold_is_asked_when_all_of_them_do() -> None:
    needed = need.vocabulary.at_most(1024).when(need.batch.at_most(8), need.sampling.one_of("greedy"))
    assert str(needed) == "vocabulary is at most 1024 when batch is at most 8 and sampling is greedy"
    assert needed.check(but(BASE, batch=9)) is None
    assert needed.check(but(BASE, features="top_p")) is None
    assert needed.check(but(BASE, vocabulary=1024)) is None
    assert str(needed.check(BASE)) == "vocabulary=32768, needs at most 1024 for batch=8 and sampling=greedy"


def test_every_feature_of_a_cell_can_be_denied_by_name() -> None:
    assert get_args(cell.Feature) == FEATURES
    assert str(need.features.only(*FEATURES)) == "features is any"


def test_requirements_are_values() -> None:
    assert need.sm.at_least(80) == need.sm.at_least(80)
    assert need.sm.at_least(80) != need.sm.at_least(90)
    assert need.sm.at_least(80).when(need.mask.one_of("tree")) != need.sm.at_least(80).when(need.mask.one_of("none"))
