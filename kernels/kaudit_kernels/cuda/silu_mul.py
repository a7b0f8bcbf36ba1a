"""The launch of silu_mul.cu."""

import torch
from torch import Tensor

from kaudit_kernels.cuda.module import launch

VECTOR = 8
"""16-bit elements in one access of 16 bytes."""
THREADS = 256
EACH = 2
"""Vectors of gate and of up that a thread has on their way at once."""

INSTANCE = {torch.float16: f"silu_mul_kernel<Half, {EACH}>", torch.bfloat16: f"silu_mul_kernel<BFloat16, {EACH}>"}


def silu_mul(gate_up: Tensor) -> Tensor:
    """As eager.silu_mul: gate_up [tokens, 2 * intermediate] to [tokens, intermediate]."""
    tokens, width = gate_up.shape
    out = gate_up.new_empty(tokens, width // 2)
    vectors = width // 2 // VECTOR
    grid = (tokens, -(-vectors // (THREADS * EACH)))
    launch("silu_mul.cu", INSTANCE[gate_up.dtype], grid, THREADS, gate_up.data_ptr(), out.data_ptr(), vectors)
    return out
