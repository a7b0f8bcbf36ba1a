"""The launch of logits_mask.cu."""

import torch
from torch import Tensor

from kaudit_kernels.cuda.module import launch

VECTOR = 4
"""Logits in one access of 16 bytes."""
WORD = 32
"""Tokens in one word of the grammar's mask."""
THREADS = 256

INSTANCE = "logits_mask_kernel"


def logits_mask(logits: Tensor, allowed: Tensor) -> Tensor:
    """As eager.logits_mask: logits [batch, vocabulary] float32, allowed [batch, vocabulary / 32] int32."""
    batch, vocabulary = logits.shape
    out = torch.empty_like(logits)
    vectors = vocabulary // VECTOR
    grid = (batch, -(-vectors // THREADS))
    addresses = logits.data_ptr(), allowed.data_ptr(), out.data_ptr()
    launch("logits_mask.cu", INSTANCE, grid, THREADS, *addresses, vectors)
    return out
