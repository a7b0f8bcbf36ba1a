"""The tensors of a cell as FlashInfer wants them: NHD, requests packed one after another. Imports no FlashInfer."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines.batches import Pages, normal, offsets, visible
from kaudit_probes.engines.flashinfer_problem import Problem
from kaudit_probes.oracle import Attention, Request, Rules, gathered


class Inputs:
    """Each tensor is made when a call first asks for it: a cell's KV is paged or packed, not both."""

    def __init__(self, cell: Cell, problem: Problem, workspace: Tensor) -> None:
        self.cell, self.problem = cell, problem
        self.workspace = workspace
        """Bytes on the device for split KV. Calls run one after another, so all cells may share it."""
        self._device = str(workspace.device)
        self.q_lens, self.kv_lens = q_lens(cell), kv_lens(cell)
        self.q_starts, self.kv_starts = offsets(self.q_lens), offsets(self.kv_lens)

    @cached_property
    def q(self) -> Tensor:
        """[tokens, q_heads, head_dim]"""
        return self._normal(self.problem.q_dtype, sum(self.q_lens), self.cell.heads.q, self.cell.heads.dim)

    @cached_property
    def out(self) -> Tensor:
        """[tokens, q_heads, v_head_dim]. Given by the caller, as engines do: FlashInfer's own would be filled first."""
        shape = *self.q.shape[:2], self.cell.heads.v_dim
        return torch.empty(shape, dtype=self.problem.o_dtype, device=self._device)

    @cached_property
    def pages(self) -> Pages:
        return Pages.of(self.kv_lens, self.cell.layout.page)

    @cached_property
    def paged_kv(self) -> Tensor | tuple[Tensor, Tensor]:
        """[pages, 2, page, kv_heads, head_dim]; two tensors without the 2 where V's head dim differs from K's."""
        heads, pages = self.cell.heads, len(self.pages.indices)
        dtype, page = self.problem.kv_dtype, self.cell.layout.page
        if heads.dim == heads.v_dim:
            # One tensor: K and V of unlike strides would cost FlashInfer another JIT module.
            return self._normal(dtype, pages, 2, page, heads.kv, heads.dim, seed=1)
        return (
            self._normal(dtype, pages, page, heads.kv, heads.dim, seed=1),
            self._normal(dtype, pages, page, heads.kv, heads.v_dim, seed=2),
        )

    @cached_property
    def packed_kv(self) -> tuple[Tensor, Tensor]:
        """[KV tokens, kv_heads, head_dim] and the same of V."""
        heads, tokens = self.cell.heads, sum(self.kv_lens)
        return (
            self._normal(self.problem.kv_dtype, tokens, heads.kv, heads.dim, seed=1),
            self._normal(self.problem.kv_dtype, tokens, heads.kv, heads.v_dim, seed=2),
        )

    @cached_property
    def custom_mask(self) -> Tensor | None:
        """[sum of q_len * kv_len of each request], True where the query sees the key."""
        if not self.problem.custom_mask:
            return None
        lens = zip(self.q_lens, self.kv_lens, strict=True)
        each = [visible(self.cell.mask, q_len, kv_len).flatten() for q_len, kv_len in lens]
        return torch.cat(each).to(self._device)

    @cached_property
    def sinks(self) -> Tensor:
        """[q_heads]"""
        return self._normal(torch.float32, self.cell.heads.q, seed=3)

    def attention(self) -> Attention | None:
        """What attention over these should come to. None where the textbook cannot tell: FlashInfer rotates q and k in
        the kernel by sines of its own precision, and rounds fp8 queries' weights to fp8."""
        problem, cell = self.problem, self.cell
        if problem.pos_encoding != "NONE" or problem.q_dtype.itemsize == 1:
            return None
        rules = Rules(
            cell.mask,
            cell.heads.dim**-0.5,
            problem.softcap or None,
            self.sinks if problem.entry == "sink" else None,
        )
        return Attention(self._requests, rules, cell.layout.page)

    def _requests(self) -> Iterator[Request]:
        q_starts, kv_starts = pairwise(self.q_starts.tolist()), pairwise(self.kv_starts.tolist())
        for number, (own, held) in enumerate(zip(q_starts, kv_starts, strict=True)):
            if self.cell.layout.kind == "paged":
                k, v = self._paged(number)
            else:
                k, v = (packed[slice(*held)] for packed in self.packed_kv)
            q_len, kv_len = self.q_lens[number], self.kv_lens[number]
            given = visible(self.cell.mask, q_len, kv_len) if self.cell.mask.kind == "custom" else None
            yield Request(self.q[slice(*own)], k, v, given)

    def _paged(self, request: int) -> tuple[Tensor, Tensor]:
        """K and V of one request, [KV tokens, kv_heads, dim] each, off its pages."""
        start, end = self.pages.starts[request : request + 2].tolist()
        pages = self.pages.indices[start:end].long().to(self._device)
        held = self.paged_kv
        k, v = held.unbind(1) if isinstance(held, Tensor) else held
        kv_len = self.kv_lens[request]
        return tuple(gathered(pool.contiguous(), pages).flatten(0, 1)[:kv_len] for pool in (k, v))  # type: ignore[return-value]

    def _normal(self, dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
        return normal(self._device, dtype, *shape, seed=seed)
