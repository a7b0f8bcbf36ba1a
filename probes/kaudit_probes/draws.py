"""What a token that is drawn at random should be: for a given number, and, over many numbers, how often which.

Top-k comes before top-p, which is of what top-k left; equals of the least token that stays, stay. The token of a
number of [0, 1) is the one in whose part of the line it falls, where the probabilities lie side by side, as tokens are
numbered.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from kaudit_probes.numerics import Computed

DRAWN = "drawn"
"""Of a drawn token, in tolerances.yaml."""

FALSE_ALARMS = 1e-6
"""How often tokens of the right distribution are called wrong: once in a million cells, were their draws not seeded."""

DRAWS, TOKENS = 1 << 14, 128
"""Of the test of the distribution: draws of one row of so many logits."""

_FEWEST = 10.0
"""Draws expected of a class: rarer tokens are counted as one. With few, the statistic is not chi-square's."""

_SLACK = 1e-4
"""Of top-p: a token this near to its end may be in or out."""

_MOST = 1e9
"""In place of infinity, which no JSON holds and which is never near to anything."""


@dataclass(frozen=True)
class Sampling:
    """`top_k` 0 and `top_p` 1: no limit."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0

    def probabilities(self, logits: Tensor, slack: float = 0.0) -> Tensor:
        """[rows, tokens] float64 that sum to one, of logits of that shape."""
        shares = (logits.double() / self.temperature).softmax(-1)
        ordered, _ = shares.sort(-1, descending=True)
        if self.top_k:
            least = ordered[:, : self.top_k][:, -1:]
            shares = torch.where(shares >= least, shares, 0.0)
            shares = shares / shares.sum(-1, keepdim=True)
            ordered, _ = shares.sort(-1, descending=True)
        taken = (ordered.cumsum(-1) - ordered < self.top_p + slack).sum(-1, keepdim=True)
        last = (taken - 1).clamp_min(0)  # of logits that are no numbers none is taken
        shares = torch.where(shares >= ordered.gather(-1, last), shares, 0.0)
        return shares / shares.sum(-1, keepdim=True)

    def less(self) -> dict[str, "Sampling"]:
        """By what it leaves out, each that does less; of one limit, that without it."""
        without = {"top_k": replace(self, top_k=0), "top_p": replace(self, top_p=1.0)}
        each = {limit: other for limit, other in without.items() if other != self}
        return each if len(each) < 2 else {**each, "top_k and top_p": Sampling(self.temperature)}


def by_number(sampling: Sampling, logits: Tensor, tokens: Tensor, numbers: Tensor) -> Computed:
    """Tokens and numbers [rows]: how far each number is outside of its token's part of the line; 1, if it has none.

    Of a row with logits that are no numbers nothing is known."""
    known = (tokens >= 0) & (tokens < logits.shape[1])
    at = torch.where(known, tokens, 0)[:, None]

    def off(how: Sampling) -> Tensor:
        shares = how.probabilities(logits)
        end = shares.cumsum(-1).gather(1, at)[:, 0]
        start, number = end - shares.gather(1, at)[:, 0], numbers.double()
        outside = torch.maximum(start - number, number - end).clamp_min(0.0)
        stays = known & (how.probabilities(logits, _SLACK).gather(1, at)[:, 0] > 0)
        return 1 + torch.where(stays, outside, 1.0)

    right = torch.where(logits.isnan().any(1), torch.nan, 1.0).double()
    return _at_most_one(off, sampling, right)


def by_distribution(sampling: Sampling, logits: Tensor, tokens: Tensor) -> Computed:
    """Many tokens [draws] of one row of logits [tokens], each by a number of its own: how unlikely they are."""

    def unlikely(how: Sampling) -> Tensor:
        return misfit(tokens, how.probabilities(logits[None])[0])[None]

    return _at_most_one(unlikely, sampling, torch.ones(1, dtype=torch.float64, device=logits.device))


def misfit(tokens: Tensor, shares: Tensor) -> Tensor:
    """How unlikely tokens [draws] are by their probabilities [tokens]: the logarithm of the chance that Pearson's
    chi-square is no smaller, in units of that of FALSE_ALARMS. Infinite where a token was drawn that cannot be."""
    known = (tokens >= 0) & (tokens < len(shares))
    seen = torch.bincount(tokens[known], minlength=len(shares)).double()
    if not known.all() or (seen[shares == 0] > 0).any():
        return torch.tensor(torch.inf, dtype=torch.float64)
    expected = shares * len(tokens)
    rare = expected < _FEWEST
    seen, expected = (torch.cat((of[~rare], of[rare].sum()[None])) for of in (seen, expected))
    seen, expected = seen[expected > 0], expected[expected > 0]
    statistic = ((seen - expected).square() / expected).sum()
    freedom = torch.tensor(max(len(expected) - 1, 1), dtype=torch.float64)  # of one class the statistic is 0
    chance: Tensor = torch.special.gammaincc(freedom / 2, statistic.cpu() / 2)
    return chance.log() / math.log(FALSE_ALARMS)


def _at_most_one(error: Callable[[Sampling], Tensor], sampling: Sampling, right: Tensor) -> Computed:
    """Up to 1 is right: what exceeds it is the error. `right`: [rows], 1, or NaN where nothing is known."""

    def of(how: Sampling) -> Tensor:
        return error(how).to(right).clamp(1.0, _MOST)[:, None]

    got = of(sampling)
    # What is right without a limit has an error of 1 by it: `got` times that is `got`.
    without: Mapping[str, Callable[[], Tensor]] = {
        limits: partial(lambda how: got * of(how), how) for limits, how in sampling.less().items()
    }
    return Computed("sample", got, lambda: right[:, None], stored=DRAWN, without=without)
