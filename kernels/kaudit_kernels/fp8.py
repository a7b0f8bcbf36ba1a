"""Weights in fp8 (e4m3), and the rounding to it: a scale for each column of a weight, and for each row of its input."""

from dataclasses import dataclass

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
TINY = 1e-12
"""The least maximum that a scale is made from: a row of zeros stays zeros."""


@dataclass(frozen=True)
class Fp8Weight:
    """A weight [in, out] of a projection: values times scales."""

    values: Tensor
    """[in, out] float8_e4m3fn, each column contiguous: the order in which fp8 tensor cores take it."""
    scales: Tensor
    """[1, out] float32."""

    def dequantised(self) -> Tensor:
        """[in, out] float32."""
        return self.values.float() * self.scales


def quantised(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x in fp8, and its scales in float32, of length 1 along `dim`: they map the largest magnitude there to LARGEST.

    Divided by a tensor: a GPU multiplies by the reciprocal of a number, which is off by a bit. Where the scale is a
    power of two, one in 16 numbers of a bf16 row is in the middle of two of fp8: the bit would say which it becomes.
    """
    wide = x.float()
    most = wide.abs().amax(dim, keepdim=True).clamp(min=TINY)
    scales = most / torch.full_like(most, LARGEST)
    return (wide / scales).clamp(-LARGEST, LARGEST).to(FP8), scales


def fp8_weight(weight: Tensor) -> Fp8Weight:
    """A weight [in, out] of any float type, quantised by column."""
    values, scales = quantised(weight, dim=0)
    columns = values.view(torch.uint8).t().contiguous().view(FP8)
    return Fp8Weight(columns.t(), scales)
