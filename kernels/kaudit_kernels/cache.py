"""The KV cache of one layer: every layout is rows of tokens, and a way to find a request's rows.

Rows that no request has written hold NaN (127 in int8), so that a kernel that reads past a length, into the tail of a
page or into a page of nobody shows it in its output. Rows that another request or a dropped branch has written hold
what it wrote: a number like any other, as in a server that has run for an hour.
"""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kaudit_kernels import places
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
    """A cache with the tokens before the new ones filled in at random, stale rows too, and every other row poisoned."""
    placed = {"contiguous": places.contiguous, "ragged": places.ragged, "paged": places.paged}[problem.kv_layout]
    total, rows, kv_start, page_table = placed(problem)
    prefixes = [len(each) - q_len for each, q_len in zip(rows, problem.q_lens, strict=True)]
    filled = torch.unique(torch.cat([each[:prefix] for each, prefix in zip(rows, prefixes, strict=True)])).to(device)
    stale = places.stale_rows(problem, total, prefixes, page_table).to(device)
    k_scale, v_scale = _scales(problem, device)
    k, v = _memory(problem, total, device)
    for stored, scale in ((k, k_scale), (v, v_scale)):
        for slots in (stale, filled):  # a stale row that is filled is stale no more
            drawn = torch.randn(len(slots), *stored.shape[1:], generator=generator, device=device)
            write(stored, slots, drawn, scale)
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
    movable(stored).index_copy_(0, slots, movable(x.to(stored.dtype)))


def read(stored: Tensor, rows: Tensor, scale: Tensor | None) -> Tensor:
    """The rows of one request as float32 [kv_len, kv_heads, dim], multiplied by the scale of their head."""
    x = movable(stored).index_select(0, rows).view(stored.dtype).float()
    return x if scale is None else x * scale[:, None]


def movable(x: Tensor) -> Tensor:
    """The same bytes in a dtype that indexing takes: torch moves no float8."""
    return x.view(torch.uint8) if x.element_size() == 1 else x


def _memory(problem: Problem, total: int, device: str) -> tuple[Tensor, Tensor]:
    """K and V, poisoned: [total, kv_heads, dim] each, in the memory order that the features ask for."""
    heads, k_dim, v_dim = problem.kv_heads, problem.head_dim, problem.v_head_dim
    if "transposed" in problem.features:  # heads first, as in FlashInfer's HND
        k, v = (_poisoned((heads, total, dim), problem, device).transpose(0, 1) for dim in (k_dim, v_dim))
    elif "sliced" in problem.features:  # K and V of a token side by side
        k, v = torch.split(_poisoned((total, heads, k_dim + v_dim), problem, device), [k_dim, v_dim], dim=-1)
    else:
        k, v = (_poisoned((total, heads, dim), problem, device) for dim in (k_dim, v_dim))
    return k, v


def _poisoned(shape: tuple[int, ...], problem: Problem, device: str) -> Tensor:
    dtype = TORCH_DTYPE[problem.kv_dtype]
    if dtype == torch.int8:
        return torch.full(shape, 127, dtype=dtype, device=device)
    return torch.full(shape, torch.nan, dtype=torch.float32, device=device).to(dtype)


def _scales(problem: Problem, device: str) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Of K and of V. They differ from head to head and from each other, so that a kernel that takes the scale of
    another head, of the other tensor, or none, is found out."""
    largest = LARGEST.get(TORCH_DTYPE[problem.kv_dtype])
    if largest is None:
        return None, None
    share = torch.arange(problem.kv_heads, dtype=torch.float32, device=device) / problem.kv_heads
    return REACH / largest * (1 + share), REACH / largest * (1.7 - 0.5 * share)


def resume(cache: Cache, page_size: int) -> None:
    """The requests are preempted and resumed: their pages were given to others, and their KV stands in other pages.

    Every page moves on by one, in place, as an engine does whose CUDA graphs know the tables by their addresses. Where
    a page was, another request's is now.
    """
    total = len(cache.k)
    for stored in (cache.k, cache.v):
        stored.copy_(movable(stored).roll(page_size, 0).view(stored.dtype))
    for rows in (*cache.rows, cache.slots):
        rows.copy_((rows + page_size) % total)
    cache.page_table.copy_((cache.page_table + 1) % (total // page_size))
