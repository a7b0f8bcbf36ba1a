"""What attention libraries are given of a cell: lengths, masks, page tables, tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from kaudit.cell import Mask

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}

SOFTCAP = 30.0
"""Logits are capped to (-30, 30) under the feature softcap: Gemma 2's and Grok's cap."""


def offsets(lens: Sequence[int]) -> Tensor:
    """[requests + 1] int32 on the CPU: where each request begins, and the total."""
    return torch.tensor([0, *accumulate(lens)], dtype=torch.int32)


def normal(device: str, dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    """Standard normal values, the same in every run. Tensors of one shape that are to differ have seeds of their own.

    Types of one byte have no generator: they are filled from bf16.
    """
    generator = torch.Generator(device).manual_seed(seed)
    drawn = torch.bfloat16 if dtype.itemsize == 1 else dtype
    return torch.randn(shape, generator=generator, device=device, dtype=drawn).to(dtype)


def visible(mask: Mask, q_len: int, kv_len: int) -> Tensor:
    """[q_len, kv_len] on the CPU, True where the query sees the key. Queries are the last q_len of kv_len tokens."""
    own = torch.arange(kv_len - q_len, kv_len)[:, None]
    keys = torch.arange(kv_len)[None, :]
    match mask.kind:
        case "none":
            return torch.ones(q_len, kv_len, dtype=torch.bool)
        case "causal":
            return keys <= own
        case "window":
            return (keys <= own) & (keys > own - mask.window)
        case "custom":
            # Half of the keys at random, and always the query's own: a query that sees nothing has no defined output.
            random = torch.rand(q_len, kv_len, generator=torch.Generator().manual_seed(0)) < 0.5
            return random | (keys == own)
        case "tree":
            return torch.cat((torch.ones(q_len, kv_len - q_len, dtype=torch.bool), _ancestry(q_len)), dim=1)


def _ancestry(nodes: int) -> Tensor:
    """[nodes, nodes] of a binary tree in heap order, True where the column is the row's node or an ancestor of it."""
    sees = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):
        sees[node] |= sees[(node - 1) // 2]
    return sees


@dataclass(frozen=True)
class Pages:
    """Which page of the cache holds which tokens: all int32, on the CPU."""

    starts: Tensor
    """[requests + 1], into `indices`."""
    indices: Tensor
    """[pages], in shuffled order: neighbours in a sequence are not neighbours in memory."""
    last_lens: Tensor
    """[requests], tokens on each request's last page, 1 to the page size."""

    @classmethod
    def of(cls, lens: Sequence[int], page: int) -> "Pages":
        counts = [-(-length // page) for length in lens]
        shuffled = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))
        last = [length - (count - 1) * page for length, count in zip(lens, counts, strict=True)]
        return cls(offsets(counts), shuffled.to(torch.int32), torch.tensor(last, dtype=torch.int32))

    def table(self) -> Tensor:
        """[requests, most pages of one]: the same as a block table, rows filled up with page 0."""
        starts = self.starts.tolist()
        rows = [self.indices[start:end] for start, end in pairwise(starts)]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
