"""The KV cache of one layer: every layout is rows of tokens, and a way to find a request's rows.

Rows that no request has written hold NaN (127 in int8), so that a kernel that reads past a length, into the tail of a
page or into a page of nobody shows it in its output.
"""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kaudit_kernels.problem import Problem

TORCH_DTYPE = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}

LARGEST = {
    torch.float8_e4m3fn: torch.finfo(torch.float8_e4m3fn).max,
    torch.float8_e5m2: torch.finfo(torch.float8_e5m2).max,
    torch.int8: 127.0,
}
"""Of the quantised types, the largest magnitude stored: -128 is left out, so that int8 is symmetric."""

REACH = 6.0
"""The magnitude that a scale maps to the largest stored one; K and V are near a standard normal distribution."""


@dataclass(frozen=True)
class Cache:
    """K and V of a batch, and where each request's tokens lie. Row: one token, all of its KV heads."""

    k: Tensor
    """[rows, kv_heads, head_dim] in kv_dtype."""
    v: Tensor
    """[rows, kv_heads, v_head_dim] in kv_dtype."""
    k_scale: Tensor | None
    """[kv_heads] float32, by which stored K is multiplied; None where kv_dtype is not quantised."""
    v_scale: Tensor | None
    """[kv_heads] float32, by which stored V is multiplied; None where kv_dtype is not quantised."""
    rows: tuple[Tensor, ...]
    """Per request, the rows of its tokens in order: [kv_len] int64."""
    slots: Tensor
    """[tokens] int64: the row that each new token is written to."""
    q_start: Tensor
    """[batch + 1] int32: the first new token of each request in the activations, then their number."""
    kv_lens: Tensor
    """[batch] int32."""
    kv_start: Tensor
    """[batch] int64: the first row of each request; zeros where paged."""
    page_table: Tensor
    """[batch, most pages of a request] int32; past a request's pages, a page of nobody. [batch, 1] unless paged."""


def make_cache(problem: Problem, device: str, generator: torch.Generator) -> Cache:
    """A cache with the tokens before the new ones filled in at random, and every other row poisoned."""
    places = {"contiguous": _contiguous, "ragged": _ragged, "paged": _paged}[problem.kv_layout]
    total, rows, kv_start, page_table = places(problem)
    prefixes = [len(each) - q_len for each, q_len in zip(rows, problem.q_lens, strict=True)]
    filled = torch.unique(torch.cat([each[:prefix] for each, prefix in zip(rows, prefixes, strict=True)])).to(device)
    tensors = []
    for head_dim in (problem.head_dim, problem.v_head_dim):
        scale = _scale(problem, device)
        stored = _poisoned((total, problem.kv_heads, head_dim), problem, device)
        drawn = torch.randn(len(filled), problem.kv_heads, head_dim, generator=generator, device=device)
        write(stored, filled, drawn, scale)
        tensors.append((stored, scale))
    (k, k_scale), (v, v_scale) = tensors
    return Cache(
        k=k,
        v=v,
        k_scale=k_scale,
        v_scale=v_scale,
        rows=tuple(each.to(device) for each in rows),
        slots=torch.cat([each[prefix:] for each, prefix in zip(rows, prefixes, strict=True)]).to(device),
        q_start=torch.tensor([0, *accumulate(problem.q_lens)], dtype=torch.int32).to(device),
        kv_lens=torch.tensor(problem.kv_lens, dtype=torch.int32).to(device),
        kv_start=kv_start.to(device),
        page_table=page_table.to(device),
    )


def write(stored: Tensor, slots: Tensor, x: Tensor, scale: Tensor | None) -> None:
    """Store x [tokens, kv_heads, dim] in the rows `slots`, divided by the scale of its head and rounded."""
    if scale is not None:
        x = x.float() / scale[:, None]
        if stored.dtype == torch.int8:
            x = x.round()
        x = x.clamp(-LARGEST[stored.dtype], LARGEST[stored.dtype])
    _movable(stored).index_copy_(0, slots, _movable(x.to(stored.dtype)))


def read(stored: Tensor, rows: Tensor, scale: Tensor | None) -> Tensor:
    """The rows of one request as float32 [kv_len, kv_heads, dim], multiplied by the scale of their head."""
    x = _movable(stored).index_select(0, rows).view(stored.dtype).float()
    return x if scale is None else x * scale[:, None]


def _movable(x: Tensor) -> Tensor:
    """The same bytes in a dtype that indexing takes: torch moves no float8."""
    return x.view(torch.uint8) if x.element_size() == 1 else x


def _poisoned(shape: tuple[int, ...], problem: Problem, device: str) -> Tensor:
    dtype = TORCH_DTYPE[problem.kv_dtype]
    if dtype == torch.int8:
        return torch.full(shape, 127, dtype=dtype, device=device)
    return torch.full(shape, torch.nan, dtype=torch.float32, device=device).to(dtype)


def _scale(problem: Problem, device: str) -> Tensor | None:
    """Differs from head to head, so that a kernel that takes the scale of another head, or none, is found out."""
    largest = LARGEST.get(TORCH_DTYPE[problem.kv_dtype])
    if largest is None:
        return None
    heads = torch.arange(problem.kv_heads, dtype=torch.float32, device=device)
    return REACH / largest * (1 + heads / problem.kv_heads)


Places = tuple[int, list[Tensor], Tensor, Tensor]
"""Rows in all, rows per request, first rows, page table: see Cache."""


def _contiguous(problem: Problem) -> Places:
    kv_start = torch.arange(problem.batch) * problem.kv_len
    rows = [start + torch.arange(kv_len) for start, kv_len in zip(kv_start, problem.kv_lens, strict=True)]
    return problem.batch * problem.kv_len, rows, kv_start, torch.zeros(problem.batch, 1, dtype=torch.int32)


def _ragged(problem: Problem) -> Places:
    *starts, total = accumulate(problem.kv_lens, initial=0)
    rows = [start + torch.arange(kv_len) for start, kv_len in zip(starts, problem.kv_lens, strict=True)]
    return total, rows, torch.tensor(starts), torch.zeros(problem.batch, 1, dtype=torch.int32)


def _paged(problem: Problem) -> Places:
    """Pages in shuffled order, one page of nobody among them; under prefix_share requests' first pages are shared."""
    size, kv_lens = problem.page_size, problem.kv_lens
    counts = [-(-kv_len // size) for kv_len in kv_lens]
    shared = 0
    if "prefix_share" in problem.features:
        prefix = min(kv_len - q_len for kv_len, q_len in zip(kv_lens, problem.q_lens, strict=True))
        shared = prefix // 2 // size
    pages = shared + sum(count - shared for count in counts) + 1
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(pages)).to(torch.int32)
    nobody, common, own = order[0], order[1 : 1 + shared], order[1 + shared :]
    page_table = nobody.repeat(problem.batch, max(counts))
    rows = []
    for request, (count, kv_len) in enumerate(zip(counts, kv_lens, strict=True)):
        page_table[request, :count] = torch.cat((common, own[: count - shared]))
        own = own[count - shared :]
        tokens = torch.arange(kv_len)
        rows.append(page_table[request, tokens // size].long() * size + tokens % size)
    return pages * size, rows, torch.zeros(problem.batch, dtype=torch.int64), page_table
