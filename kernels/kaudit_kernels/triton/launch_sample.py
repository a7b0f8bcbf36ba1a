"""The launch of sample.py. Triton is imported at the first one: a box without it can still decide."""

import math

import torch
from torch import Tensor

from kaudit_kernels.eager_sampling import TEMPERATURE, limits
from kaudit_kernels.inputs import Inputs


def sample(logits: Tensor, inputs: Inputs) -> Tensor:
    """As eager_sampling.sample, one thread block a row."""
    from kaudit_kernels.triton.sample import sample_kernel

    batch, vocabulary = logits.shape
    top_k, top_p = limits(inputs.problem.features)
    tokens = torch.empty(batch, dtype=torch.int64, device=logits.device)
    block = 1 << (vocabulary - 1).bit_length()
    sample_kernel[(batch,)](
        logits,
        inputs.draws,
        tokens,
        vocabulary,
        math.log2(math.e) / TEMPERATURE,
        TOP_K=top_k,
        TOP_P=top_p,
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 32),
    )
    return tokens
