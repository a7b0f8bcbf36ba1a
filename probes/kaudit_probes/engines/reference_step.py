"""The reference engine's step from its input to its output as the textbook runs it, in float64 all the way."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from kaudit.cell import Cell, Mask
from kaudit.requests import q_lens
from kaudit_probes.engines.reference_model import EPSILON, MODELS, positions
from kaudit_probes.oracle import Attention, attend, project, rms_norm, silu_mul, visible
from kaudit_probes.rotation import rotated


def last_hidden(cell: Cell, inputs: Any, done: Mapping[str, Tensor], attention: Attention) -> tuple[Tensor, Tensor]:
    """Of the last new token of each request that has one, the hidden state behind the layer: the engine's, and that of
    the textbook. [requests, hidden] each. K and V are as they stand in the cache."""
    lens = [q_len for q_len in q_lens(cell) if q_len]
    last = torch.tensor([end - 1 for end in accumulate(lens)], device=inputs.x.device)
    x = inputs.x[last].double()
    qkv = project(rms_norm(x, inputs.attention_norm, EPSILON), inputs.qkv)
    heads = cell.heads
    q = qkv[:, : heads.q * heads.dim].reshape(-1, heads.q, heads.dim)
    q = rotated(q, positions(cell).to(q.device)[last], cell.rope, MODELS[cell.rope.scaling])
    residual = x + project(torch.cat(list(_attended(attention, q))).flatten(1), inputs.o)
    gated = silu_mul(project(rms_norm(residual, inputs.mlp_norm, EPSILON), inputs.gate_up))
    _, kept = done["add_rms_norm"]
    return kept[last].double() + done["down_proj"][last].double(), residual + project(gated, inputs.down)


def _attended(attention: Attention, q: Tensor) -> Iterator[Tensor]:
    """[1, q_heads, v_dim] of each request: its last query, which sees what that sees among the others."""
    given = replace(attention.rules, mask=Mask("custom"))
    for own, request in zip(q, attention.requests(), strict=True):
        q_len = len(request.q)
        sees = visible(attention.rules.mask, request, range(q_len - 1, q_len))
        if sees is None:
            sees = torch.ones(1, len(request.k), dtype=torch.bool, device=q.device)
        yield attend(replace(request, q=own[None], visible=sees), given)[0]
