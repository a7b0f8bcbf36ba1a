"""Whether one list of samples is larger than another: the rank test of Mann and Whitney (1947), exact, one-sided."""

from collections.abc import Sequence
from functools import cache

import numpy as np


def larger(samples: Sequence[float], than: Sequence[float]) -> float:
    """The chance that samples of one distribution come out as much in favour of `samples` being the larger ones.

    A tie counts against it, so that a coarse clock accuses nobody. 1.0 where either has none.
    """
    if not samples or not than:
        return 1.0
    below = np.searchsorted(np.sort(np.asarray(than)), np.asarray(samples), side="left")
    # As likely as to lose so few of all pairs.
    return _at_most(len(samples) * len(than) - int(below.sum()), len(samples), len(than))


def _at_most(lost: int, one: int, other: int) -> float:
    counts = _orders(min(one, other), max(one, other))
    return float(min(1.0, counts[: lost + 1].sum() / counts.sum()))


@cache
def _orders(few: int, many: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """By the number of pairs lost, in how many orders of all samples that happens: the coefficients of the Gaussian
    binomial, prod (1 - x^(many + i)) / (1 - x^i)."""
    size = few * many + 1
    counts = np.zeros(size)
    counts[0] = 1.0
    for i in range(1, few + 1):
        shift = many + i
        if shift < size:
            counts[shift:] -= counts[:-shift].copy()
        padded = np.zeros(-(-size // i) * i)
        padded[:size] = counts
        counts = np.cumsum(padded.reshape(-1, i), axis=0).reshape(-1)[:size]
    return counts


def holm(chances: Sequence[float], level: float) -> list[bool]:
    """Which of many tests hold, so that the chance of any to do so by mere chance is at most `level` (Holm 1979)."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    held = [False] * len(chances)
    for rank, place in enumerate(order):
        if chances[place] > level / (len(chances) - rank):
            break
        held[place] = True
    return held
