"""The tensors of a cell as FlashInfer wants them: NHD, requests packed one after another. Imports no FlashInfer."""

from functools import cached_property

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit_probes.engines.batches import Pages, kv_lens, normal, offsets, q_lens, visible
from kaudit_probes.engines.flashinfer_problem import Problem


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
            return self._normal(dtype, pages, 2, page, heads.kv, heads.dim)
        return (
            self._normal(dtype, pages, page, heads.kv, heads.dim),
            self._normal(dtype, pages, page, heads.kv, heads.v_dim),
        )

    @cached_property
    def packed_kv(self) -> tuple[Tensor, Tensor]:
        """[KV tokens, kv_heads, head_dim] and the same of V."""
        heads, tokens = self.cell.heads, sum(self.kv_lens)
        return (
            self._normal(self.problem.kv_dtype, tokens, heads.kv, heads.dim),
            self._normal(self.problem.kv_dtype, tokens, heads.kv, heads.v_dim),
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
        return self._normal(torch.float32, self.cell.heads.q)

    def _normal(self, dtype: torch.dtype, *shape: int) -> Tensor:
        return normal(self._device, dtype, *shape)
