"""Tokens drawn at random against the textbook: right ones are never accused, and each mistake is."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kaudit_probes.draws import DRAWS, FALSE_ALARMS, TOKENS, Sampling, by_distribution, by_number, misfit
from kaudit_probes.numerics import compare

BOTH = Sampling(0.8, 50, 0.9)
WAYS = [Sampling(0.8), Sampling(0.8, 50), Sampling(0.8, 0, 0.9), BOTH]


def some_logits(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(rows, tokens, generator=torch.Generator().manual_seed(seed))


def numbers_of(count: int, seed: int = 1) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


def drawn(sampling: Sampling, logits: Tensor, numbers: Tensor) -> Tensor:
    up_to = sampling.probabilities(logits).cumsum(-1)
    return torch.searchsorted(up_to, numbers.double()[:, None], right=True)[:, 0].clamp_max(logits.shape[1] - 1)


def test_probabilities_by_hand() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3, 0.0]], dtype=torch.float64).log()
    assert torch.allclose(Sampling(1.0).probabilities(logits), logits.exp())
    assert Sampling(1.0, 2).probabilities(logits).tolist() == [pytest.approx([0, 0.625, 0.375, 0])]
    assert Sampling(1.0, 2, 0.6).probabilities(logits).tolist() == [[0, 1, 0, 0]]
    assert Sampling(1.0, 0, 0.6).probabilities(logits).tolist() == [pytest.approx([0, 0.625, 0.375, 0])]
    equals = torch.tensor([[1.0, 2.0, 1.0, 1.0]])
    assert (Sampling(1.0, 2).probabilities(equals) > 0).all()


@pytest.mark.parametrize("sampling", WAYS, ids=str)
def test_right_tokens_are_not_accused(sampling: Sampling) -> None:
    logits, numbers = some_logits(64, 4096), numbers_of(64)
    tokens = drawn(sampling, logits, numbers)
    assert compare(by_number(sampling, logits, tokens, numbers)).verdict == "ok"
    row = logits[0, :TOKENS]
    many = drawn(sampling, row.expand(DRAWS, -1), numbers_of(DRAWS))
    assert compare(by_distribution(sampling, row, many)).verdict == "ok"


FAULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "no temperature": lambda logits, numbers: drawn(Sampling(1.0, 50, 0.9), logits, numbers),
    "no top-k": lambda logits, numbers: drawn(Sampling(0.8, 0, 0.9), logits, numbers),
    "one less of top-k": lambda logits, numbers: drawn(Sampling(0.8, 49, 0.9), logits, numbers),
    "no top-p": lambda logits, numbers: drawn(Sampling(0.8, 50), logits, numbers),
    "top-p before top-k": lambda logits, numbers: drawn(
        Sampling(0.8, 50), Sampling(0.8, 0, 0.9).probabilities(logits).log() * 0.8, numbers
    ),
    "greedy": lambda logits, _: logits.argmax(-1),
    "the next token": lambda logits, numbers: drawn(BOTH, logits, numbers) + 1,
    "no token": lambda logits, numbers: torch.full_like(drawn(BOTH, logits, numbers), -1),
    "the number of another": lambda logits, numbers: drawn(BOTH, logits, numbers.roll(1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_shows_by_its_numbers(fault: str) -> None:
    # Flat, so that the last token of top-k weighs something.
    logits, numbers = some_logits(64, 1024) / 6, numbers_of(64)
    assert compare(by_number(BOTH, logits, FAULTS[fault](logits, numbers), numbers)).verdict == "wrong"


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "the number of another"])
def test_a_mistake_shows_in_the_distribution(fault: str) -> None:
    row = some_logits(1, TOKENS)[0] / 6
    tokens = FAULTS[fault](row.expand(DRAWS, -1), numbers_of(DRAWS))
    assert compare(by_distribution(BOTH, row, tokens)).verdict == "wrong"


def test_false_alarms_are_as_rare_as_they_are_said_to_be() -> None:
    """Of 4000 right samples, a thousandth passes the level of one in a thousand, and none that of one in a million."""
    shares = BOTH.probabilities(some_logits(1, TOKENS) / 6)[0]
    generator = torch.Generator().manual_seed(2)
    samples = [torch.multinomial(shares, 2000, True, generator=generator) for _ in range(4000)]
    levels = torch.stack([misfit(sample, shares) for sample in samples])
    assert levels.max() < 1
    assert FALSE_ALARMS == 1e-6
    assert 0 < (levels > 0.5).sum().item() <= 13  # the square root of a millionth; 4 expected


def test_one_class_and_no_class_of_tokens() -> None:
    sure = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert misfit(torch.ones(50, dtype=torch.int64), sure) == 0
    assert misfit(torch.tensor([1, 1, 2]), sure) == torch.inf


@pytest.mark.parametrize(
    ("fault", "named"), [("no top-k", "top_k"), ("no top-p", "top_p"), ("neither", "top_k and top_p"), ("greedy", "")]
)
def test_a_limit_without_effect_is_named(fault: str, named: str) -> None:
    draw = FAULTS.get(fault) or (lambda logits, numbers: drawn(Sampling(0.8), logits, numbers))
    logits, numbers = some_logits(64, 4096) / 6, numbers_of(64)
    found = compare(by_number(BOTH, logits, draw(logits, numbers), numbers))
    assert (found.verdict, found.ignored) == ("wrong", named)
    row = some_logits(1, TOKENS)[0] / 6
    found = compare(by_distribution(BOTH, row, draw(row.expand(DRAWS, -1), numbers_of(DRAWS))))
    assert (found.verdict, found.ignored) == ("wrong", named)


def test_of_logits_that_are_no_numbers_nothing_is_known() -> None:
    logits, numbers = some_logits(4, 64), numbers_of(4)
    tokens = drawn(BOTH, logits, numbers)
    logits[2] = torch.nan
    assert compare(by_number(BOTH, logits, tokens, numbers)).verdict == "unchecked"
    tokens[1] = -1
    assert compare(by_number(BOTH, logits, tokens, numbers)).verdict == "wrong"
