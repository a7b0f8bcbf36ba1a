"""What the errors of a whole step come to: the tokens that it makes likely, beside those that the textbook does."""

import math
from functools import cache

import torch
from torch import Tensor

from kaudit_probes.figures import errors

TOP = 8
"""The most likely tokens that are compared."""

_VOCABULARY = 1024
"""Tokens of the head that stands in for a model's: enough that the first two are a model's usual margin apart."""


def parity(got: Tensor, wanted: Tensor) -> dict[str, float]:
    """Both [requests, hidden], the hidden states behind the layer, the textbook's in float64.

    step_error: as the error of an op. top_k: the share of the textbook's TOP tokens that are among the engine's TOP,
    over all requests. greedy: the share of requests in which both choose one token. margin: how far the textbook's
    first token is before its second, at least, where the spread of logits is 1. Nothing, where a state is no number:
    no token comes of that.
    """
    if not (got.isfinite().all() and wanted.isfinite().all()):
        return {}
    off, _ = errors(got[:, None], wanted[:, None])
    head = _head(wanted.shape[-1], str(wanted.device))
    logits, right = (_normed(hidden.double()) @ head for hidden in (got, wanted))
    best, chosen = right.topk(TOP), logits.topk(TOP).indices
    shared = (chosen[:, :, None] == best.indices[:, None, :]).any(1)
    return {
        "step_error": off.max().item(),
        "top_k": shared.double().mean().item(),
        "greedy": (chosen[:, 0] == best.indices[:, 0]).double().mean().item(),
        "margin": (best.values[:, 0] - best.values[:, 1]).min().item(),
    }


@cache
def _head(hidden: int, device: str) -> Tensor:
    """[hidden, _VOCABULARY], the same in every run; logits of a normalised state spread by 1."""
    drawn = torch.randn(hidden, _VOCABULARY, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (drawn / math.sqrt(hidden)).to(device)


def _normed(hidden: Tensor) -> Tensor:
    size: Tensor = hidden.square().mean(-1, keepdim=True).sqrt()
    return hidden / size
