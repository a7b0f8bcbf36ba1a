"""Rotary position encoding as it was published, in float64: the oracle's part of it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kaudit.cell import Rope


@dataclass(frozen=True)
class Frequencies:
    """The figures of a model's configuration. `low` and `high` bound the blend of llama3; of yarn, its beta_slow and
    beta_fast. `trained`: tokens of the context that the model was trained with."""

    base: float
    factor: float = 1.0
    low: float = 0.0
    high: float = 0.0
    trained: int = 0


def rotated(x: Tensor, positions: Tensor, rope: Rope, model: Frequencies) -> Tensor:
    """x [tokens, heads, dim] at positions [tokens], as complex numbers turned: float64.

    A pair is (i, i + dim / 2) for neox, (2i, 2i + 1) interleaved.
    """
    if rope.style == "none":
        return x.double()
    shape = (2, -1) if rope.style == "neox" else (-1, 2)
    pairs = x.double().view(*x.shape[:-1], *shape)
    if rope.style == "neox":
        pairs = pairs.transpose(-1, -2)
    per_position, magnitude = _per_position(x.shape[-1], rope, model)
    radians = positions.double()[:, None, None] * per_position.to(x.device)
    turn = torch.polar(torch.full_like(radians, magnitude), radians)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    return (turned.transpose(-1, -2) if rope.style == "neox" else turned).flatten(-2)


def _per_position(dim: int, rope: Rope, model: Frequencies) -> tuple[Tensor, float]:
    """Radians per position of each pair [dim / 2], and the factor on what is turned."""
    plain = torch.tensor([model.base ** (-2 * pair / dim) for pair in range(dim // 2)], dtype=torch.float64)
    match rope.scaling:
        case "none":
            return plain, 1.0
        case "linear":
            return plain / model.factor, 1.0
        case "llama3":
            return torch.tensor([_llama3(each, model) for each in plain.tolist()], dtype=torch.float64), 1.0
        case "yarn":
            first, last = _yarn_bounds(dim, model)
            stretched = ((torch.arange(dim // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
            return plain / model.factor * stretched + plain * (1 - stretched), 0.1 * math.log(model.factor) + 1


def _llama3(frequency: float, model: Frequencies) -> float:
    """Llama 3.1's: wavelengths above trained / low are stretched, those below trained / high left alone."""
    wavelength = 2 * math.pi / frequency
    if wavelength > model.trained / model.low:
        return frequency / model.factor
    if wavelength < model.trained / model.high:
        return frequency
    smooth = (model.trained / wavelength - model.low) / (model.high - model.low)
    return (1 - smooth) * frequency / model.factor + smooth * frequency


def _yarn_bounds(dim: int, model: Frequencies) -> tuple[float, float]:
    """The pairs between which YaRN blends: those that turn `high` and `low` times within the trained context."""
    pairs = [
        dim * math.log(model.trained / (turns * 2 * math.pi)) / (2 * math.log(model.base))
        for turns in (model.high, model.low)
    ]
    first, last = max(math.floor(pairs[0]), 0), min(math.ceil(pairs[1]), dim - 1)
    return first, last if last > first else first + 0.001  # the published code's guard against a step of no width
