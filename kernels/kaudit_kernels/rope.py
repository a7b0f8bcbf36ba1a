"""Rotary position encoding: frequencies under each scaling, and the angles of given positions."""

import math

import torch
from torch import Tensor

from kaudit_kernels.problem import RopeScaling

BASE = 10_000.0
"""Theta of RoFormer and Llama 2."""
LINEAR_FACTOR = 4.0
# The figures of Llama 3.1's config.json.
LLAMA3_FACTOR, LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_TRAINED = 8.0, 1.0, 4.0, 8192
# The factor and bounds of the YaRN paper (arXiv 2309.00071, section 3.2) over Llama 2's trained context.
YARN_FACTOR, YARN_FAST, YARN_SLOW, YARN_TRAINED = 32.0, 32.0, 1.0, 4096


def frequencies(head_dim: int, scaling: RopeScaling) -> tuple[Tensor, float]:
    """Radians per position of each pair, [head_dim / 2] in float64, and the factor on cosine and sine."""
    plain = BASE ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    match scaling:
        case "none":
            return plain, 1.0
        case "linear":
            return plain / LINEAR_FACTOR, 1.0
        case "llama3":
            return _llama3(plain), 1.0
        case "yarn":
            return _yarn(plain, head_dim), 0.1 * math.log(YARN_FACTOR) + 1.0


def _llama3(plain: Tensor) -> Tensor:
    """Long waves are stretched by the whole factor, short ones are left, those between are blended by their turns."""
    turns = LLAMA3_TRAINED * plain / (2 * math.pi)
    keep = ((turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)).clamp(0, 1)
    return keep * plain + (1 - keep) * plain / LLAMA3_FACTOR


def _yarn(plain: Tensor, head_dim: int) -> Tensor:
    """As llama3, but the blend is linear in the index of the pair, between the pairs that turn FAST and SLOW times."""

    def pair_with(turns: float) -> float:
        return head_dim * math.log(YARN_TRAINED / (turns * 2 * math.pi)) / (2 * math.log(BASE))

    low = max(math.floor(pair_with(YARN_FAST)), 0)
    high = min(math.ceil(pair_with(YARN_SLOW)), head_dim - 1)
    # The two ends may meet for a small head; a thousandth of a pair keeps the ramp a ramp, as in the published code.
    ramp = (torch.arange(head_dim // 2, dtype=torch.float64) - low) / max(high - low, 0.001)
    keep = 1 - ramp.clamp(0, 1)
    return keep * plain + (1 - keep) * plain / YARN_FACTOR


def angles(positions: Tensor, head_dim: int, scaling: RopeScaling) -> tuple[Tensor, Tensor]:
    """Cosines and sines of integer positions [tokens], each [tokens, head_dim / 2] in float32.

    The product is taken in float64: at position 131,071 float32 has radians in steps of 1/128.
    """
    per_position, magnitude = frequencies(head_dim, scaling)
    radians = positions.double()[:, None] * per_position.to(positions.device)
    return (radians.cos() * magnitude).float(), (radians.sin() * magnitude).float()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    """Rotate the pairs of x [tokens, heads, head_dim]; a pair is (i, i + head_dim / 2), or (2i, 2i + 1) interleaved.

    In float32, whatever the dtype of x; the caller rounds.
    """
    cosines, sines = cosines[:, None], sines[:, None]
    if interleaved:
        first, second = x.float()[..., ::2], x.float()[..., 1::2]
    else:
        first, second = x.float().chunk(2, dim=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
