"""A feature without effect is named; and the tokens that a whole step would choose are held against the textbook's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from numerics_for_tests import PAGED, checked
from test_numerics_observed import ONES, observed

from kaudit.observation import Ran
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.inputs import Inputs
from kaudit_probes.numerics import Computed, compare
from kaudit_probes.parity import TOP, parity


def launched(monkeypatch: pytest.MonkeyPatch, op: str, change: Callable[..., tuple[Any, ...]]) -> None:
    """Have every kernel of the op launched with other arguments."""

    def around(launch: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: launch(*change(*arguments))

    kernels = tuple(replace(kernel, launch=around(kernel.launch)) for kernel in CATALOGUE[op])
    monkeypatch.setitem(CATALOGUE, op, kernels)  # type: ignore[arg-type]


def without(feature: str) -> Callable[..., tuple[Any, ...]]:
    def change(q: torch.Tensor, inputs: Inputs) -> tuple[Any, ...]:
        kept = inputs.problem.features - {feature}
        sinks = None if feature == "sinks" else inputs.sinks
        return q, replace(inputs, problem=replace(inputs.problem, features=kept), sinks=sinks)

    return change


def unrotated(qkv: torch.Tensor, inputs: Inputs) -> tuple[Any, ...]:
    return qkv, replace(inputs, problem=replace(inputs.problem, rope="none"))


@pytest.mark.parametrize(
    ("op", "features", "change", "named"),
    [
        ("attention", "softcap", without("softcap"), "softcap"),
        ("attention", "sinks", without("sinks"), "sinks"),
        ("logits_mask", "grammar", lambda logits, allowed: (logits, torch.full_like(allowed, -1)), "grammar"),
        ("rope_kv_write", "plain", unrotated, "rope"),
        ("sample", "top_k+top_p", without("top_k"), "top_k"),
        ("sample", "top_k+top_p", without("top_p"), "top_p"),
    ],
)
def test_a_feature_without_effect_is_named(
    monkeypatch: pytest.MonkeyPatch, op: str, features: str, change: Callable[..., tuple[Any, ...]], named: str
) -> None:
    # fp32, since the cap bends a score of 5 by a third of a percent.
    cell = PAGED.format(mask="causal", features=features).replace("bf16", "fp32").replace("neox", "neox@257")
    assert {one.ignored for one in checked(cell).values()} == {""}
    launched(monkeypatch, op, change)
    found = checked(cell)[op]
    assert (found.verdict, found.ignored) == ("wrong", named)
    assert found.numbers.hint == f"as if {named} were not applied"


def test_logits_that_are_not_written_cost_the_op_that_left_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token drawn from them is no error of the sampler, and looking at it none of the textbook."""

    def left(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(logits)

    kernels = tuple(replace(kernel, launch=left) for kernel in CATALOGUE["logits_mask"])
    monkeypatch.setitem(CATALOGUE, "logits_mask", kernels)  # type: ignore[arg-type]
    found = checked(PAGED.format(mask="causal", features="grammar+top_k+top_p"))
    assert (found["logits_mask"].verdict, found["sample"].verdict) == ("unwritten", "unchecked")
    assert found["sample"].numbers.hint == ""


def test_no_memory_for_the_whole_step_leaves_the_verdict_on_its_last_op() -> None:
    def no_memory() -> tuple[torch.Tensor, torch.Tensor]:
        raise torch.OutOfMemoryError("out of memory")

    found = compare(Computed("down_proj", torch.ones(2, 4), torch.ones(2, 4).double, step=no_memory))
    assert (found.verdict, found.numbers.step_error) == ("ok", None)


def test_a_feature_that_changes_nothing_that_can_be_seen_accuses_nobody() -> None:
    same = torch.ones(2, 4)
    assert compare(Computed("o_proj", same, same.double, without={"it": same.double})).ignored == ""


def test_a_result_that_is_wrong_otherwise_ignores_nothing() -> None:
    off = torch.ones(2, 4)
    found = compare(Computed("o_proj", 3 * off, off.double, without={"it": (2 * off).double}))
    assert (found.verdict, found.ignored) == ("wrong", "")


def test_the_row_says_it() -> None:
    seen = observed(lambda: [Computed("attention", ONES, lambda: 2 * ONES, without={"softcap": lambda: ONES})])
    (ran,) = (row.outcome for row in seen.rows if row.op == "attention")
    assert isinstance(ran, Ran)
    assert (ran.numerics, ran.ignored) == ("wrong", "softcap")


def test_a_step_tells_how_its_tokens_compare() -> None:
    numbers = checked(PAGED.format(mask="causal", features="plain"))["down_proj"].numbers
    assert numbers.step_error is not None
    assert 0 < numbers.step_error < 0.1
    assert numbers.greedy == 1
    assert numbers.top_k is not None
    assert numbers.top_k > 0.8
    assert numbers.margin is not None
    assert numbers.margin > 0


def test_an_error_that_ops_hand_on_shows_in_the_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each op is right by what it was given; what came to the first was another input."""

    def shifted(x: torch.Tensor, weight: torch.Tensor) -> tuple[Any, ...]:
        return x.roll(1, -1), weight

    launched(monkeypatch, "rms_norm", shifted)
    found = checked(PAGED.format(mask="causal", features="plain"))
    assert found["rms_norm"].verdict == "wrong"
    assert {one.verdict for op, one in found.items() if op != "rms_norm"} == {"ok"}
    numbers = found["down_proj"].numbers
    assert (numbers.step_error or 0) > 0.2
    assert (numbers.top_k or 1) < 1


def test_parity_of_states_that_are_known() -> None:
    hidden = torch.randn(5, 64, dtype=torch.float64)
    same = parity(hidden, hidden)
    assert (same["step_error"], same["top_k"], same["greedy"]) == (0, 1, 1)
    assert parity(2 * hidden, hidden)["greedy"] == 1  # the norm before the head takes the size out
    other = parity(torch.randn(5, 64, generator=torch.Generator().manual_seed(1)), hidden)
    assert other["top_k"] < 1 / TOP * 2
    assert not parity(hidden * torch.nan, hidden)
