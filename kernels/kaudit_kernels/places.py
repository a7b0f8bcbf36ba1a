"""Where the tokens of each request lie in the rows of a cache, for every layout; and which rows others have left."""

from itertools import accumulate

import torch
from torch import Tensor

from kaudit_kernels.problem import Problem

Places = tuple[int, list[Tensor], Tensor, Tensor]
"""Rows in all, rows per request, first rows, page table: see Cache."""


def contiguous(problem: Problem) -> Places:
    """Rows for kv_len tokens of each request, however long it is: those past a shorter one's end are nobody's."""
    kv_start = torch.arange(problem.batch) * problem.kv_len
    rows = [start + torch.arange(kv_len) for start, kv_len in zip(kv_start, problem.kv_lens, strict=True)]
    return problem.batch * problem.kv_len, rows, kv_start, torch.zeros(problem.batch, 1, dtype=torch.int32)


def ragged(problem: Problem) -> Places:
    """Requests one after another, with no row between them."""
    *starts, total = accumulate(problem.kv_lens, initial=0)
    rows = [start + torch.arange(kv_len) for start, kv_len in zip(starts, problem.kv_lens, strict=True)]
    return total, rows, torch.tensor(starts), torch.zeros(problem.batch, 1, dtype=torch.int32)


def paged(problem: Problem) -> Places:
    """Pages in shuffled order, one page of nobody among them; under prefix_share requests' first pages are shared."""
    size, kv_lens = problem.page_size, problem.kv_lens
    counts = [pages_held(problem, kv_len) for kv_len in kv_lens]
    shared = problem.shared_prefix // size
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


def pages_held(problem: Problem, kv_len: int) -> int:
    """Pages of a request. The drafts of a dropped branch had reached into one more, which is not given back yet."""
    return -(-kv_len // problem.page_size) + ("stale_branch" in problem.features)


def stale_rows(problem: Problem, total: int, prefixes: list[int], page_table: Tensor) -> Tensor:
    """[rows] int64 that hold what another wrote, or what was written and taken back: a number, and nobody's business.

    `cancelled`: the whole pool, which a request that is gone had filled. `stale_branch`: where the new tokens will
    stand, and from there to the end of the request's last page: the draft tokens of a branch that was not taken.
    """
    if "cancelled" in problem.features:
        return torch.arange(total)
    if "stale_branch" not in problem.features:
        return torch.empty(0, dtype=torch.int64)
    size, drafted = problem.page_size, []
    for request, (prefix, kv_len) in enumerate(zip(prefixes, problem.kv_lens, strict=True)):
        tokens = torch.arange(prefix, pages_held(problem, kv_len) * size)
        drafted.append(page_table[request, tokens // size].long() * size + tokens % size)
    return torch.cat(drafted)
