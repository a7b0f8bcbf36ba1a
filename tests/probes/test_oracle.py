"""The textbook against loops over numbers, and against what must hold of a rotation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kaudit.cell import Mask, Rope
from kaudit_probes.oracle import Request, Rules, allowed_logits, attend, lineage, rms_norm, silu_mul
from kaudit_probes.rotation import Frequencies, rotated


def sees(mask: Mask, query: int, key: int, before: int) -> bool:
    own = before + query
    match mask.kind:
        case "causal":
            return key <= own
        case "window":
            return own - mask.window < key <= own
        case "tree":
            return key < before or key - before in lineage(query)
    return True


def by_loops(request: Request, rules: Rules) -> tuple[Tensor, Tensor]:
    (q_len, q_heads, _), (kv_len, kv_heads, v_dim) = request.q.shape, request.v.shape
    out, lse = torch.zeros(q_len, q_heads, v_dim).double(), torch.zeros(q_len, q_heads).double()
    for query in range(q_len):
        for head in range(q_heads):
            served = head // (q_heads // kv_heads)
            weights = []
            for key in range(kv_len):
                pairs = zip(request.q[query, head].tolist(), request.k[key, served].tolist(), strict=True)
                score = sum(a * b for a, b in pairs) * rules.scale
                if rules.softcap is not None:
                    score = rules.softcap * math.tanh(score / rules.softcap)
                weights.append(math.exp(score) if sees(rules.mask, query, key, kv_len - q_len) else 0.0)
            total = sum(weights) + (0.0 if rules.sinks is None else math.exp(rules.sinks[head].item()))
            lse[query, head] = math.log(total)
            for key, weight in enumerate(weights):
                out[query, head] += weight / total * request.v[key, served].double()
    return out, lse


@given(
    mask=st.sampled_from(["none", "causal", "window1", "window3", "tree"]).map(Mask.parse),
    q_len=st.integers(1, 5),
    before=st.integers(0, 4),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    softcap=st.sampled_from([None, 2.0]),
    sinks=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_attention_is_what_loops_over_numbers_say(
    mask: Mask, q_len: int, before: int, heads: tuple[int, int], softcap: float | None, sinks: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    q_heads, kv_heads = heads
    kv_len = before + q_len
    request = Request(
        torch.randn(q_len, q_heads, 4), torch.randn(kv_len, kv_heads, 4), torch.randn(kv_len, kv_heads, 3)
    )
    rules = Rules(mask, 0.7, softcap, torch.randn(q_heads) if sinks else None)
    for found, wanted in zip(attend(request, rules), by_loops(request, rules), strict=True):
        torch.testing.assert_close(found, wanted)
    part = attend(request, rules, range(q_len - 1, q_len))
    torch.testing.assert_close(part[0], attend(request, rules)[0][-1:])


def test_a_query_that_sees_nothing_comes_to_nothing() -> None:
    request = Request(torch.ones(1, 1, 2), torch.ones(3, 1, 2), torch.ones(3, 1, 2), torch.zeros(1, 3) > 0)
    out, lse = attend(request, Rules(Mask("custom"), 1.0))
    assert (out.tolist(), lse.tolist()) == ([[[0.0, 0.0]]], [[-math.inf]])


def test_scales_are_of_their_heads() -> None:
    k, v = torch.ones(2, 2, 1, dtype=torch.int8), torch.ones(2, 2, 1, dtype=torch.int8)
    rules = Rules(Mask("none"), 1.0, v_scale=torch.tensor([2.0, 3.0]))
    out, _ = attend(Request(torch.ones(1, 2, 1), k, v), rules)
    assert out.flatten().tolist() == pytest.approx([2, 3])


MODELS = {
    "none": Frequencies(1e4),
    "linear": Frequencies(1e4, 4),
    "llama3": Frequencies(1e4, 8, 1, 4, 8192),
    "yarn": Frequencies(1e4, 32, 1, 32, 4096),
}


@pytest.mark.parametrize("scaling", MODELS)
@pytest.mark.parametrize("style", ["neox", "interleaved"])
def test_a_score_depends_on_the_distance_alone(style: str, scaling: str) -> None:
    rope, model = Rope.parse(f"{style}+{scaling}" if scaling != "none" else style), MODELS[scaling]
    q, k = torch.randn(2, 1, 1, 64).double()

    def score(query: int, key: int) -> float:
        turned = [rotated(x, torch.tensor([position]), rope, model) for x, position in ((q, query), (k, key))]
        return (turned[0] * turned[1]).sum().item()

    assert score(131071, 131000) == pytest.approx(score(71, 0), rel=1e-6)
    assert score(71, 0) != pytest.approx(score(70, 0), rel=1e-3)


def test_yarn_turns_far_positions_by_the_published_frequencies() -> None:
    """arXiv 2309.00071, section 3.2, in plain Python: a blend in float32 is off by 1e-5 radians here."""
    dim, position, model = 64, 32767 + 1024, MODELS["yarn"]
    x = torch.zeros(1, 1, dim)
    x[..., : dim // 2] = 1
    turned = rotated(x, torch.tensor([position]), Rope.parse("neox+yarn"), model).flatten().tolist()

    def pair_with(turns: float) -> float:
        return dim * math.log(model.trained / (turns * 2 * math.pi)) / (2 * math.log(model.base))

    low, high = math.floor(pair_with(32)), math.ceil(pair_with(1))
    for pair in range(dim // 2):
        plain = model.base ** (-2 * pair / dim)
        kept = 1 - min(max((pair - low) / (high - low), 0), 1)
        angle = position * (plain * kept + plain / model.factor * (1 - kept))
        magnitude = 0.1 * math.log(model.factor) + 1
        assert turned[pair] == pytest.approx(magnitude * math.cos(angle), abs=1e-9)
        assert turned[pair + dim // 2] == pytest.approx(magnitude * math.sin(angle), abs=1e-9)


def test_a_pair_of_neox_is_half_a_head_apart() -> None:
    x, one = torch.zeros(1, 1, 4), torch.tensor([1])
    x[..., 0] = 1
    neox = rotated(x, one, Rope("neox"), MODELS["none"]).flatten().tolist()
    interleaved = rotated(x, one, Rope("interleaved"), MODELS["none"]).flatten().tolist()
    assert neox == pytest.approx([math.cos(1), 0, math.sin(1), 0])
    assert interleaved == pytest.approx([math.cos(1), math.sin(1), 0, 0])


def test_the_other_ops() -> None:
    assert rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0).flatten().tolist() == pytest.approx(
        [3 / 12.5**0.5, 8 / 12.5**0.5]
    )
    assert silu_mul(torch.tensor([[1.0, -2.0, 3.0, 5.0]])).flatten().tolist() == pytest.approx(
        [3 / (1 + math.exp(-1)), -10 / (1 + math.exp(2))]
    )
    allowed = torch.tensor([[1, -(2**31)]], dtype=torch.int32)
    kept = allowed_logits(torch.zeros(1, 64), allowed)[0]
    assert [token for token in range(64) if kept[token] == 0] == [0, 63]
