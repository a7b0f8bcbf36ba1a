"""The reference for the choice of a token, in plain torch: where greedy, top-k and top-p are written down, once."""

import torch
from torch import Tensor

from kaudit_kernels.inputs import Inputs

TEMPERATURE = 0.8
TOP_K = 50
TOP_P = 0.9
"""What the features top_k and top_p stand for, and the temperature that comes with either."""


def sample(logits: Tensor, inputs: Inputs) -> Tensor:
    """logits [batch, vocabulary] to tokens [batch] int64: the largest, or drawn, where the features say so."""
    features = inputs.problem.features
    top_k, top_p = limits(features)
    if not top_k and not top_p:
        return logits.argmax(dim=-1)
    return draw(logits, inputs.draws, top_k, top_p)


def limits(features: frozenset[str]) -> tuple[int, float]:
    """`top_k` and `top_p` of a step; 0 stands for no such limit, both for greedy."""
    return TOP_K if "top_k" in features else 0, TOP_P if "top_p" in features else 0.0


def draw(logits: Tensor, draws: Tensor, top_k: int, top_p: float) -> Tensor:
    """One token a row, by a uniform number of [0, 1) a row: draws [batch].

    Top-k first: what is less than the k-th largest logit goes; equals of that one stay, so that more than k may. Then
    top-p, of what is left and sums to one again: a token goes if those more probable than it come to top_p, so that
    equals stay or go together. The token is the first, in the order of the vocabulary, at which the sum of the
    probabilities up to it exceeds the number: a logit of minus infinity is never chosen. A row of nothing else has no
    token; it gives 0, as greedy does.
    Sums are taken in float64: over a vocabulary float32 loses seven bits.
    """
    scaled = logits.double() / TEMPERATURE
    if top_k:
        least = scaled.topk(min(top_k, scaled.shape[-1])).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    weights = scaled.softmax(dim=-1)
    if top_p:
        ordered = weights.sort(dim=-1, descending=True).values
        before = ordered.cumsum(dim=-1) - ordered
        least = ordered.masked_fill(before >= top_p, torch.inf).amin(dim=-1, keepdim=True)
        weights = weights.masked_fill(weights < least, 0.0)
    up_to = weights.cumsum(dim=-1)
    return (up_to > draws[:, None] * up_to[:, -1:]).int().argmax(dim=-1)
