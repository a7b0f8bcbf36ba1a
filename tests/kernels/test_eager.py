"""The reference against definitions written out independently: loops over elements, or the published formulas."""

import math
from collections.abc import Callable

import pytest
import torch
from kernel_problems import SMALL, but, chunk
from torch import Tensor

from kaudit_kernels import cache, eager, eager_sampling, masks, rope
from kaudit_kernels.eager_attention import SOFTCAP, attend
from kaudit_kernels.inputs import make_inputs, positions
from kaudit_kernels.problem import KvDType, Mask, RopeScaling

WINDOW = 3


def _is_ancestor(node: int, other: int) -> bool:
    """Of a binary tree whose root is 1 and whose node n has the parent n // 2."""
    while node > other:
        node //= 2
    return node == other


SEES: dict[Mask, Callable[[int, int, int], bool]] = {
    "none": lambda _query, _key, _prefix: True,
    "causal": lambda query, key, prefix: key <= prefix + query,
    "window": lambda query, key, prefix: 0 <= prefix + query - key < WINDOW,
    "tree": lambda query, key, prefix: key < prefix or _is_ancestor(query + 1, key - prefix + 1),
}


@pytest.mark.parametrize("mask", SEES)
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (1, 5), (4, 4), (5, 9), (7, 8)])
def test_masks(mask: Mask, q_len: int, kv_len: int) -> None:
    made = masks.visible(mask, WINDOW, q_len, kv_len, seed=0)
    prefix = kv_len - q_len
    wanted = [[SEES[mask](query, key, prefix) for key in range(kv_len)] for query in range(q_len)]
    assert made.tolist() == wanted
    assert masks.sees_all(mask, WINDOW, q_len, kv_len) == made.all().item()


def test_a_custom_mask_is_the_requests_own_and_shows_each_query_its_own_key() -> None:
    problem = but(SMALL, **chunk(6, 20), mask="custom")
    made = masks.Masks(problem, "cpu", seed=0)
    first, second = made.of(0), made.of(1)
    assert first is not None
    assert second is not None
    assert first is made.of(0)
    assert not torch.equal(first, second)
    assert first.diagonal(20 - 6).all()
    assert 0.3 < first.float().mean().item() < 0.7


def _naive(
    q: Tensor, k: Tensor, v: Tensor, sees: Callable[[int, int, int], bool], softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """Attention one (query, head) at a time, in Python floats."""
    (q_len, q_heads, dim), (kv_len, kv_heads, v_dim) = q.shape, v.shape
    out = torch.empty(q_len, q_heads, v_dim)
    for query in range(q_len):
        for head in range(q_heads):
            kv_head = head * kv_heads // q_heads
            weights = []
            for key in range(kv_len):
                score = sum(a * b for a, b in zip(q[query, head].tolist(), k[key, kv_head].tolist(), strict=True))
                score /= math.sqrt(dim)
                if softcap is not None:
                    score = softcap * math.tanh(score / softcap)
                weights.append(math.exp(score) if sees(query, key, kv_len - q_len) else 0.0)
            total = sum(weights) + (0.0 if sinks is None else math.exp(sinks[head].item()))
            out[query, head] = sum(weight / total * v[key, kv_head] for key, weight in enumerate(weights))
    return out


@pytest.mark.parametrize("mask", SEES)
@pytest.mark.parametrize("softcap", [None, 2.0, SOFTCAP])
@pytest.mark.parametrize("sink", [False, True])
def test_attention_is_what_the_loops_say(mask: Mask, softcap: float | None, sink: bool) -> None:
    torch.manual_seed(0)
    q, k, v = 3 * torch.randn(5, 6, 4), torch.randn(9, 2, 4), torch.randn(9, 2, 3)
    sinks = torch.randn(6) if sink else None
    visible = masks.visible(mask, WINDOW, 5, 9, seed=0)
    found = attend(q, k, v, visible, softcap, sinks)
    torch.testing.assert_close(found, _naive(q, k, v, SEES[mask], softcap, sinks), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kv_dtype", "steps"), [("fp8_e4m3", 2**-3), ("fp8_e5m2", 2**-2), ("int8", None)])
def test_quantised_cache_gives_back_what_was_written_to_within_a_step(kv_dtype: KvDType, steps: float | None) -> None:
    made = cache.make_cache(but(SMALL, kv_dtype=kv_dtype), "cpu", torch.Generator().manual_seed(0))
    assert made.k_scale is not None
    assert len(set(made.k_scale.tolist())) == SMALL.kv_heads  # a kernel that takes another head's scale is found out
    x = torch.randn(2, SMALL.kv_heads, SMALL.head_dim)
    cache.write(made.k, made.slots, x, made.k_scale)
    back = cache.read(made.k, made.slots, made.k_scale)
    step = made.k_scale[:, None] if steps is None else steps * x.abs() + made.k_scale[:, None]
    assert ((back - x).abs() <= 0.501 * step).all()


def test_values_beyond_the_range_are_stored_as_its_ends() -> None:
    for dtype, largest in cache.LARGEST.items():
        stored = torch.zeros(2, 1, 1).to(dtype)
        cache.write(stored, torch.arange(2), torch.tensor([1e9, -1e9]).view(2, 1, 1), torch.ones(1))
        assert stored.float().flatten().tolist() == [largest, -largest]


def test_pages_are_poisoned_past_every_length_and_shared_under_prefix_share() -> None:
    problem = but(SMALL, **chunk(4, 53), page_size=8, batch=3, skew=True, features="prefix_share")
    made = cache.make_cache(problem, "cpu", torch.Generator().manual_seed(0))
    assert problem.kv_lens == (53, 35, 17)
    # Prefixes are 49, 31 and 13 tokens: half of the shortest is 6 tokens, not one whole page.
    assert len(set(made.page_table[:, 0].tolist())) == 3
    longer = but(problem, kv_len=153, skew=False)
    made = cache.make_cache(longer, "cpu", torch.Generator().manual_seed(0))
    shared = (153 - 4) // 2 // 8
    assert (made.page_table[0] == made.page_table[1]).tolist() == [True] * shared + [False] * (20 - shared)
    written = torch.zeros(len(made.k), dtype=torch.bool)
    for rows, kv_len in zip(made.rows, longer.kv_lens, strict=True):
        assert len(rows) == kv_len
        written[rows[: kv_len - 4]] = True
    assert made.k.isnan().all(dim=(1, 2)).tolist() == (~written).tolist()
    assert len(set(made.slots.tolist())) == longer.tokens
    assert not written[made.slots].any()


def test_rotation_turns_each_pair_by_its_angle() -> None:
    x = torch.randn(2, 1, 4)
    cosines, sines = rope.angles(torch.tensor([3, 131071]), 4, "none")
    for token, position in enumerate((3, 131071)):
        for pair, frequency in enumerate((1.0, 10_000**-0.5)):
            turn = complex(math.cos(position * frequency), math.sin(position * frequency))
            for interleaved, (a, b) in ((False, (pair, pair + 2)), (True, (2 * pair, 2 * pair + 1))):
                turned = rope.rotate(x, cosines, sines, interleaved)[token, 0]
                wanted = complex(x[token, 0, a].item(), x[token, 0, b].item()) * turn
                assert turned[a].item() == pytest.approx(wanted.real, abs=1e-6)
                assert turned[b].item() == pytest.approx(wanted.imag, abs=1e-6)


def _published(scaling: RopeScaling, head_dim: int, pair: int) -> tuple[float, float]:
    """Frequency of a pair and the factor on cosine and sine, after the code published with each model."""
    frequency = 10_000.0 ** (-2 * pair / head_dim)
    wavelength = 2 * math.pi / frequency
    match scaling:
        case "none":
            return frequency, 1.0
        case "linear":
            return frequency / 4, 1.0
        case "llama3":
            if wavelength < 8192 / 4:
                return frequency, 1.0
            if wavelength > 8192 / 1:
                return frequency / 8, 1.0
            smooth = (8192 / wavelength - 1) / (4 - 1)
            return (1 - smooth) * frequency / 8 + smooth * frequency, 1.0
        case "yarn":

            def dimension(turns: float) -> float:
                return head_dim * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(10_000))

            low, high = math.floor(dimension(32)), math.ceil(dimension(1))
            ramp = min(max((pair - low) / (high - low), 0), 1)
            return frequency / 32 * ramp + frequency * (1 - ramp), 0.1 * math.log(32) + 1


@pytest.mark.parametrize("scaling", ["none", "linear", "llama3", "yarn"])
@pytest.mark.parametrize("head_dim", [64, 128, 192])
def test_frequencies_are_the_published_ones(scaling: RopeScaling, head_dim: int) -> None:
    found, magnitude = rope.frequencies(head_dim, scaling)
    wanted = [_published(scaling, head_dim, pair) for pair in range(head_dim // 2)]
    assert found.tolist() == pytest.approx([frequency for frequency, _ in wanted], rel=1e-12)
    assert magnitude == pytest.approx(wanted[0][1])


def test_positions_follow_the_prefix_and_the_branches_of_a_tree() -> None:
    assert positions(but(SMALL, **chunk(3, 10), rope_offset=100)).tolist() == [107, 108, 109] * 2
    tree = but(SMALL, q_len=7, kv_len=10, mask="tree", batch=1, features="speculative_tree")
    assert positions(tree).tolist() == [3, 4, 4, 5, 5, 5, 5]


def test_norms_round_once_and_the_fused_one_reads_the_rounded_sum() -> None:
    x, residual, weight = (torch.randn(3, 8, dtype=torch.float64).bfloat16() for _ in range(3))
    normed, total = eager.add_rms_norm(x, residual, weight[0])
    assert torch.equal(total, (x.double() + residual.double()).bfloat16())
    exact = total.double() / (total.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight[0].double()
    torch.testing.assert_close(normed.double(), exact, rtol=2**-8, atol=0)
    assert torch.equal(normed, eager.rms_norm(total, weight[0]))


def test_grammar_lets_through_the_tokens_of_its_set_bits() -> None:
    problem = but(SMALL, features="grammar")
    inputs = make_inputs(problem, "cpu", seed=0)
    words = inputs.allowed.tolist()
    masked = eager.logits_mask(inputs.logits, inputs.allowed)
    for request, token in ((0, 0), (0, 31), (1, 32), (1, 12345), (0, 32767)):
        is_set = words[request][token // 32] & 0xFFFFFFFF & 1 << token % 32
        wanted = inputs.logits[request, token].item() if is_set else -math.inf
        assert masked[request, token].item() == wanted
    assert 0.4 < (masked == -math.inf).float().mean().item() < 0.6
    for request, token in enumerate(eager_sampling.sample(masked, inputs).tolist()):
        assert masked[request, token].item() == max(masked[request].tolist())
