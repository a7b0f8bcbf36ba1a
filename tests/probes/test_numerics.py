"""Planted faults are found and named; what is right is not accused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from numerics_for_tests import NARROW, PLAIN, WINDOW, checked
from torch import Tensor

from kaudit.cell import Cell, Mask
from kaudit.errors import UserError
from kaudit_kernels import eager_attention, masks
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.inputs import Inputs
from kaudit_probes.engines.torch_varlen import arguments, attention_of
from kaudit_probes.numerics import Checked, Computed, compare
from kaudit_probes.oracle import Attention, Request, Rules
from kaudit_probes.poison import poison

CHUNK = "chunked_prefill/fp32/kv-fp32/h4x2x64/paged16/causal/neox/{}/b2q16k64"


def of_attention(cell: str) -> Checked:
    """Every other op is right: it is held against what it was given."""
    found = checked(cell)
    assert {op: one.verdict for op, one in found.items() if one.verdict != "ok"}.keys() <= {"attention"}
    return found["attention"]


@pytest.mark.parametrize("by", [1, -1])
def test_a_window_that_is_off_by_one(monkeypatch: pytest.MonkeyPatch, by: int) -> None:
    right = masks.visible
    monkeypatch.setattr(masks, "visible", lambda mask, window, *rest: right(mask, window + by, *rest))
    found = of_attention(WINDOW)
    assert found.verdict == "wrong"
    assert found.numbers.hint == f"as if the window were one key {'wider' if by > 0 else 'narrower'}"


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        (WINDOW, "as if the window were not applied, the causal mask were"),
        (CHUNK.format("plain"), "as if the mask were not applied"),
        (CHUNK.format("plain").replace("causal", "tree"), "as if the mask were not applied"),
        (CHUNK.format("plain").replace("causal", "custom"), "as if the mask were not applied"),
    ],
)
def test_a_mask_that_is_dropped(monkeypatch: pytest.MonkeyPatch, cell: str, hint: str) -> None:
    right = eager_attention.attend
    monkeypatch.setattr(eager_attention, "attend", lambda q, k, v, _, **features: right(q, k, v, None, **features))
    found = of_attention(cell)
    assert (found.verdict, found.numbers.hint) == ("wrong", hint)


def test_a_mask_that_is_aligned_top_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        masks, "visible", lambda _mask, _window, q_len, kv_len, _seed: torch.ones(q_len, kv_len).tril() > 0
    )
    assert of_attention(CHUNK.format("plain")).numbers.hint == "as if the mask were aligned top-left"


@pytest.mark.parametrize("feature", ["softcap", "sinks"])
def test_a_feature_that_is_ignored(monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    right = eager_attention.attend

    def ignoring(q: Tensor, *rest: Any, **features: Any) -> Tensor:
        return right(q, *rest, **(features | {feature: None}))

    monkeypatch.setattr(eager_attention, "attend", ignoring)
    found = of_attention(CHUNK.format(feature))
    assert (found.verdict, found.numbers.hint) == ("wrong", f"as if {feature} were not applied")


@pytest.mark.parametrize(
    ("of", "hint"),
    [
        (lambda _: None, "as if the scales of K and V were not applied"),
        (lambda scale: scale.flip(0), "as if heads had each other's scales"),
        (lambda scale: scale[:1].expand_as(scale), "as if every head had the scales of the first"),
    ],
)
def test_a_scale_that_is_dropped_or_anothers(
    monkeypatch: pytest.MonkeyPatch, of: Callable[[Any], Any], hint: str
) -> None:
    right = eager_attention.read
    monkeypatch.setattr(eager_attention, "read", lambda stored, rows, scale: right(stored, rows, of(scale)))
    found = of_attention(NARROW)
    assert (found.verdict, found.numbers.hint) == ("wrong", hint)


def test_a_stale_page(monkeypatch: pytest.MonkeyPatch) -> None:
    right = eager_attention.read

    def stale(stored: Tensor, rows: Tensor, scale: Any) -> Tensor:
        return right(stored, torch.cat((rows[:32], rows[:16], rows[48:])), scale)

    monkeypatch.setattr(eager_attention, "read", stale)
    found = of_attention(PLAIN)
    worst = found.numbers.row  # one token a request
    assert (found.verdict, found.numbers.hint) == (
        "wrong",
        f"as if page 2 of request {worst} were page 0 of request {worst}",
    )


def test_a_page_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    right = eager_attention.read

    def beyond(stored: Tensor, rows: Tensor, scale: Any) -> Tensor:
        return right(stored, torch.cat((rows[:-1], rows[-1:] + 1)), scale)  # behind the last token of the last page

    monkeypatch.setattr(eager_attention, "read", beyond)
    found = checked(PLAIN)["attention"]
    assert found.verdict == "wrong"
    assert found.numbers.nonfinite


def launched(monkeypatch: pytest.MonkeyPatch, launch: Callable[[Tensor, Inputs], Tensor]) -> None:
    """Have all of the reference engine's attention kernels do this instead."""
    kernels = tuple(replace(kernel, launch=launch) for kernel in CATALOGUE["attention"])
    monkeypatch.setitem(CATALOGUE, "attention", kernels)  # type: ignore[arg-type]


def test_a_row_that_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaving(q: Tensor, inputs: Inputs) -> Tensor:
        out = torch.empty_like(q)
        out[:5], out[6:] = (eager_attention.attention(q, inputs)[part] for part in (slice(5), slice(6, None)))
        return out

    launched(monkeypatch, leaving)
    found = checked(CHUNK.format("plain"))
    attention = found["attention"]
    assert attention.verdict == "unwritten"
    assert (attention.numbers.unwritten, attention.numbers.row, attention.numbers.nonfinite) == (1, 5, 0)
    # What reads that row cannot be told from it: it is no worse, and no better.
    assert {found[op].verdict for op in ("o_proj", "add_rms_norm", "down_proj")} == {"unchecked"}


def test_kv_that_is_not_written_or_in_anothers_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from kaudit_kernels import eager

    right = eager.write
    monkeypatch.setattr(eager, "write", lambda stored, slots, x, scale: right(stored, slots[1:], x[1:], scale))
    found = checked(CHUNK.format("plain"))
    assert (found["rope_kv_write"].verdict, found["rope_kv_write"].numbers.unwritten) == ("unwritten", 1)
    monkeypatch.setattr(eager, "write", lambda stored, slots, x, scale: right(stored, slots.flip(0), x, scale))
    assert checked(NARROW)["rope_kv_write"].verdict == "wrong"


def test_parts_of_a_split_that_are_merged_without_their_log_sum_exp(monkeypatch: pytest.MonkeyPatch) -> None:
    right = eager_attention.attend

    def blindly(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Tensor:
        parts = zip(torch.split(k, 25), torch.split(v, 25), strict=True)
        return torch.stack([right(q, *part, None) for part in parts]).mean(0)

    monkeypatch.setattr(eager_attention, "attend", blindly)
    found = of_attention(PLAIN)
    assert found.verdict == "wrong"
    assert found.numbers.hint == "as if 4 parts of the keys were merged without their log-sum-exp"


def given(lse: Callable[[Tensor], Tensor], out: Callable[[Tensor], Tensor] = lambda out: out) -> Checked:
    cell = Cell.parse("chunked_prefill/fp32/kv-fp32/h4x2x64/paged16/causal/none/plain/b2q8k40skew")
    takes = frozenset({"block_table", "seqused_k", "window_size"})
    asked = attention_of(cell, arguments(cell, "cpu", takes))
    right, its_lse = asked.compute()
    return compare(Computed("attention", out(right.float()), asked, lse(its_lse.float())))


def test_a_log_sum_exp_that_is_wrong_beside_an_output_that_is_right() -> None:
    assert given(lambda lse: lse).verdict == "ok"
    for wrong in (lambda lse: lse / 0.6931, lambda lse: lse + 0.01, lambda lse: lse.where(lse < lse.max(), torch.nan)):
        found = given(wrong)
        assert (found.verdict, found.numbers.hint) == ("wrong", "the output is right, its log-sum-exp is not")


def test_an_error_does_not_scale_away_and_nan_never_passes() -> None:
    def one_element(value: float) -> Callable[[Tensor], Tensor]:
        def change(out: Tensor) -> Tensor:
            out[3, 1, 7] = value
            return out

        return change

    for value in (torch.nan, torch.inf, -torch.inf):
        found = given(lambda lse: lse, one_element(value))
        assert (found.verdict, found.numbers.nonfinite) == ("wrong", 1)
        assert (found.numbers.row, found.numbers.head) == (3, 1)
    tiny = torch.full((4, 8), 1e-8)
    assert compare(Computed("rms_norm", tiny * 1.01, lambda: tiny)).verdict == "wrong"
    assert compare(Computed("rms_norm", tiny, lambda: tiny.double() * 1.000001)).verdict == "ok"
    assert compare(Computed("rms_norm", torch.zeros(4, 8), lambda: torch.zeros(4, 8))).verdict == "ok"
    assert compare(Computed("rms_norm", tiny, lambda: torch.zeros(4, 8))).verdict == "wrong"
    masked = torch.tensor([[1.0, -torch.inf]])
    assert compare(Computed("logits_mask", masked, lambda: masked.double())).verdict == "ok"
    assert compare(Computed("logits_mask", masked, lambda: -masked.double())).verdict == "wrong"


def test_what_was_given_no_number_is_not_judged() -> None:
    nothing = torch.full((2, 4), torch.nan)
    assert compare(Computed("o_proj", torch.ones(2, 4), lambda: nothing.double())).verdict == "unchecked"


def test_only_what_carries_the_mark_was_not_written() -> None:
    out = torch.full((2, 4), torch.nan)
    assert compare(Computed("o_proj", out, lambda: torch.ones(2, 4))).verdict == "wrong"
    poison(out[1])
    found = compare(Computed("o_proj", out, lambda: torch.ones(2, 4)))
    assert (found.verdict, found.numbers.unwritten, found.numbers.nonfinite) == ("unwritten", 1, 4)


def test_an_output_of_another_shape_is_the_adapters_mistake() -> None:
    with pytest.raises(UserError, match="mend the adapter"):
        compare(Computed("o_proj", torch.ones(2, 4), lambda: torch.ones(1, 4)))


def test_kv_heads_that_serve_the_wrong_queries() -> None:
    q, k, v = torch.randn(3, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)
    asked = Attention(lambda: [Request(q, k, v)], Rules(Mask("causal"), 8**-0.5))
    spread = [0, 1, 0, 1]
    wrong = Attention(lambda: [Request(q, k[:, spread], v[:, spread])], asked.rules).compute()[0]
    found = compare(Computed("attention", wrong.float(), asked))
    assert found.numbers.hint == "as if query head h were served by KV head h modulo their number"
