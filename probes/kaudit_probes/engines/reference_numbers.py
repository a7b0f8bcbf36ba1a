"""What the reference engine's ops should come to, in the textbook's words. Imports none of it: its models' figures are
stated here once more, so that a slip in its own does not pass."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from kaudit.cell import Cell
from kaudit_probes.engines.batches import kv_lens, offsets, q_lens
from kaudit_probes.numerics import Computed
from kaudit_probes.oracle import (
    Attention,
    Request,
    Rules,
    allowed_logits,
    dequantised,
    gathered,
    indexable,
    lineage,
    project,
    rms_norm,
    silu_mul,
)
from kaudit_probes.poison import poison
from kaudit_probes.rotation import Frequencies, rotated

_EPSILON = 1e-6  # Llama's
_SOFTCAP = 50.0  # Gemma 2's, of attention
_MODELS = {
    "none": Frequencies(1e4),
    "linear": Frequencies(1e4, 4),
    "llama3": Frequencies(1e4, 8, 1, 4, 8192),  # Llama 3.1's config.json, but for its base
    "yarn": Frequencies(1e4, 32, 1, 32, 4096),  # YaRN's paper
}
_LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0}


def poison_slots(inputs: Any) -> None:
    """Forget the new tokens' K and V: a run that does not write them shows."""
    for stored in (inputs.cache.k, inputs.cache.v):
        blank = gathered(stored, inputs.cache.slots)
        poison(blank)
        indexable(stored).index_copy_(0, inputs.cache.slots, indexable(blank))


def computed(cell: Cell, inputs: Any, done: Mapping[str, Tensor]) -> Iterator[Computed]:
    """`inputs` and `done`: Step.inputs, and Step.outputs after a run. Each op is held against what it was given."""
    yield Computed("rms_norm", done["rms_norm"], partial(rms_norm, inputs.x, inputs.attention_norm, _EPSILON))
    yield Computed("qkv_proj", done["qkv_proj"], partial(project, done["rms_norm"], inputs.qkv))
    yield from _rope_kv_write(cell, inputs, done)
    yield Computed("attention", done["attention"], _attention(cell, inputs, done["rope_kv_write"]))
    yield Computed("o_proj", done["o_proj"], partial(project, done["attention"].flatten(1), inputs.o))
    normed, residual = done["add_rms_norm"]

    def total() -> Tensor:
        return torch.add(done["o_proj"].double(), inputs.x.double())

    yield Computed("add_rms_norm", residual, total)
    yield Computed("add_rms_norm", normed, lambda: rms_norm(total(), inputs.mlp_norm, _EPSILON))
    yield Computed("gate_up_proj", done["gate_up_proj"], partial(project, normed, inputs.gate_up))
    yield Computed("silu_mul", done["silu_mul"], partial(silu_mul, done["gate_up_proj"]))
    yield Computed("down_proj", done["down_proj"], partial(project, done["silu_mul"], inputs.down))
    logits = inputs.logits
    if "logits_mask" in done:
        logits = done["logits_mask"]
        yield Computed("logits_mask", logits, partial(allowed_logits, inputs.logits, inputs.allowed))
    yield _sample(logits, done["sample"])


def _sample(logits: Tensor, tokens: Tensor) -> Computed:
    """Greedy: the logit of the token chosen is the largest. A token that is none has no logit."""
    known = (tokens >= 0) & (tokens < logits.shape[1])
    chosen = logits.gather(1, torch.where(known, tokens, 0)[:, None]).masked_fill(~known[:, None], torch.nan)
    return Computed("sample", chosen, lambda: logits.double().amax(1, keepdim=True))


def _rope_kv_write(cell: Cell, inputs: Any, done: Mapping[str, Tensor]) -> Iterator[Computed]:
    """Rotated Q, and the rows of the new tokens in the cache: K rotated, V as it was."""
    heads, cache, model = cell.heads, inputs.cache, _MODELS[cell.rope.scaling]
    widths = [heads.q * heads.dim, heads.kv * heads.dim, heads.kv * heads.v_dim]
    parts = torch.split(done["qkv_proj"], widths, dim=-1)
    q, k, v = (
        part.reshape(len(part), count, -1) for part, count in zip(parts, (heads.q, heads.kv, heads.kv), strict=True)
    )
    positions = _positions(cell).to(q.device)
    yield Computed("rope_kv_write", done["rope_kv_write"], lambda: rotated(q, positions, cell.rope, model))
    yield _written(cell, cache.k, cache.k_scale, cache.slots, lambda: rotated(k, positions, cell.rope, model))
    yield _written(cell, cache.v, cache.v_scale, cache.slots, v.double)


def _written(cell: Cell, stored: Tensor, scale: Tensor | None, slots: Tensor, kept: Any) -> Computed:
    """A quantised cache keeps what is within the reach of its scale, and the nearest that is."""
    rows = gathered(stored, slots)
    if scale is None:
        return Computed("rope_kv_write", rows, kept)
    most = scale.double()[:, None] * _LARGEST[cell.kv_dtype]
    return Computed("rope_kv_write", dequantised(rows, scale), lambda: kept().clamp(-most, most), stored=cell.kv_dtype)


def _positions(cell: Cell) -> Tensor:
    """[tokens]: where each new token stands; a token of a tree stands behind its prefix and its ancestors."""
    each = [
        cell.rope.offset + kv_len - q_len + (len(lineage(token)) - 1 if cell.mask.kind == "tree" else token)
        for q_len, kv_len in zip(q_lens(cell), kv_lens(cell), strict=True)
        for token in range(q_len)
    ]
    return torch.tensor(each)


def _attention(cell: Cell, inputs: Any, q: Tensor) -> Attention:
    cache = inputs.cache

    def requests() -> Iterator[Request]:
        for number, (start, end) in enumerate(pairwise(offsets(q_lens(cell)).tolist())):
            rows = cache.rows[number]
            given = inputs.masks.of(number) if cell.mask.kind == "custom" else None
            yield Request(q[start:end], gathered(cache.k, rows), gathered(cache.v, rows), given)

    rules = Rules(
        cell.mask,
        cell.heads.dim**-0.5,
        _SOFTCAP if "softcap" in cell.features else None,
        inputs.sinks,
        cache.k_scale,
        cache.v_scale,
    )
    return Attention(requests, rules, cell.layout.page)
