"""Where memory lies, and what it held before: the inputs of a step are as the features say."""

from typing import Any

import pytest
import torch
from kernel_problems import BASE, SMALL, but, chunk, decode, prefill

from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.engine import Step
from kaudit_kernels.inputs import make_inputs
from kaudit_kernels.problem import Problem


def made(**changes: Any) -> Any:
    return make_inputs(but(SMALL, **changes), "cpu", 0)


def test_strides_are_as_the_features_say() -> None:
    plain = made(**decode(33))
    transposed, sliced, broadcast = (
        made(**decode(33), features=name) for name in ("transposed", "sliced", "broadcast")
    )
    assert plain.x.is_contiguous()
    assert plain.cache.k.is_contiguous()
    assert transposed.x.stride() == (1, 2)
    assert transposed.cache.k.transpose(0, 1).is_contiguous()
    assert sliced.x.stride() == (2 * sliced.problem.hidden, 1)
    assert sliced.cache.k.untyped_storage().data_ptr() == sliced.cache.v.untyped_storage().data_ptr()
    assert broadcast.x.stride() == (0, 1)
    assert broadcast.logits.stride(0) == 0
    assert all(given.x.shape == plain.x.shape for given in (transposed, sliced, broadcast))


@pytest.mark.parametrize("feature", ["transposed", "sliced", "broadcast"])
def test_what_reads_them_says_so_and_what_does_not_stays_fast(feature: str) -> None:
    problem = but(BASE, features=feature)
    for op, fast in (
        ("rms_norm", "fused_rms_norm"),
        ("add_rms_norm", "fused_rms_norm"),
        ("attention", "flash_prefill"),
    ):
        decision = decide(op, problem, CATALOGUE)
        assert decision.chosen.name == "eager"
        (rejected,) = (each for each in decision.rejected if each.kernel.name == fast)
        assert f"features={feature}, needs none of these" in str(rejected)
    for op in ("qkv_proj", "o_proj", "gate_up_proj", "silu_mul", "down_proj"):
        assert decide(op, problem, CATALOGUE).chosen == decide(op, BASE, CATALOGUE).chosen


def test_every_op_takes_every_history() -> None:
    for feature in ("cancelled", "preempted", "stale_branch"):
        for op in CATALOGUE:
            assert decide(op, but(BASE, features=feature), CATALOGUE).chosen == decide(op, BASE, CATALOGUE).chosen


def test_requests_without_tokens_come_last_and_take_no_rows() -> None:
    idle, vacant = (but(SMALL, **chunk(3, 20), batch=3, features=name) for name in ("idle", "vacant"))
    assert (idle.q_lens, idle.kv_lens, idle.tokens) == ((3, 3, 0), (20, 20, 20), 6)
    assert (vacant.q_lens, vacant.kv_lens, vacant.tokens) == ((3, 3, 0), (20, 20, 0), 6)


def test_a_pool_without_history_is_poisoned_but_for_the_tokens_before() -> None:
    cache = made(**decode(20)).cache
    assert cache.k.isfinite().all((1, 2)).sum() == 2 * 19


def test_a_cancelled_request_leaves_numbers_everywhere() -> None:
    cache = made(**decode(20), features="cancelled").cache
    assert cache.k.isfinite().all()
    assert cache.v.isfinite().all()


def test_a_dropped_branch_leaves_its_drafts_where_the_new_token_goes_and_behind_it() -> None:
    inputs = made(**decode(16), features="stale_branch")
    cache = inputs.cache
    assert cache.k[cache.slots].isfinite().all()
    # The page of which the drafts had taken a part is still in the table: no page of nobody.
    assert cache.page_table.shape == (2, 2)
    for pages in cache.page_table:
        drafts = torch.arange(16) + pages[1] * 16
        assert cache.k[drafts].isfinite().all()


def _attended(problem: Problem) -> tuple[Step, torch.Tensor]:
    step = Step(problem, "cpu")
    step.run()
    return step, step.outputs["attention"].clone()


@pytest.mark.parametrize("changes", [decode(40), chunk(9, 40), prefill(40)])
def test_a_preempted_request_comes_to_what_it_would_have(changes: dict[str, Any]) -> None:
    before, wanted = _attended(but(SMALL, **changes))
    after, found = _attended(but(SMALL, **changes, features="preempted"))
    torch.testing.assert_close(found, wanted)
    # Nothing stands where it stood, so that whoever kept the old table reads another's pages.
    old, new = before.inputs.cache, after.inputs.cache
    assert not (old.page_table == new.page_table).any()
    stale, fresh = old.k[old.rows[0]], new.k[old.rows[0]]
    assert not torch.equal(stale, fresh)


def test_scales_of_k_and_v_differ_in_every_head() -> None:
    for heads in (1, 2, 4, 8):
        cache = made(**decode(17), kv_dtype="int8", q_heads=8, kv_heads=heads).cache
        assert (cache.k_scale != cache.v_scale).all()
        assert len(set(cache.k_scale.tolist())) == len(set(cache.v_scale.tolist())) == heads
