"""Runs cells of an attention engine, and says what attention should come to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit.observation import Outcome
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Engine
from kaudit_probes.engines.batches import visible
from kaudit_probes.observe import Observer


def outcomes(engine: Engine, ids: Sequence[str], device: str = "cpu") -> dict[tuple[str, str], Outcome]:
    """What each (cell, op) came to, in one batch."""
    torch.set_warn_always(True)  # as the probe does
    observer = Observer(engine, Capture(device), lambda _: None)
    observed = observer.observe([Cell.parse(cell) for cell in ids])
    assert not observed.redo
    return {row.key: row.outcome for row in observed.rows}


def textbook(cell: Cell, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Per request [q_heads, its q_len, v_dim], in fp32: softmax over the keys that the cell's mask shows each query."""
    group = cell.heads.q // cell.heads.kv
    found = []
    for request, (q_len, kv_len) in enumerate(zip(q_lens(cell), kv_lens(cell), strict=True)):
        keys = k[request, :, :kv_len].float().repeat_interleave(group, 0)
        values = v[request, :, :kv_len].float().repeat_interleave(group, 0)
        scores = q[request, :, :q_len].float() @ keys.transpose(1, 2) / cell.heads.dim**0.5
        scores = scores.masked_fill(~visible(cell.mask, q_len, kv_len), float("-inf"))
        found.append(scores.softmax(-1) @ values)
    return found


def assert_textbook(cell: Cell, found: Tensor, q: Tensor, k: Tensor, v: Tensor) -> None:
    """`found`: [batch, q_heads, q_len, v_dim], rows behind a request's own are padding."""
    for request, expected in enumerate(textbook(cell, q, k, v)):
        torch.testing.assert_close(found[request, :, : expected.shape[1]].float(), expected, rtol=1e-4, atol=1e-4)
