"""What the reference engine's ops should come to, in the textbook's words. Imports none of it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from kaudit.cell import Cell, Rope
from kaudit.requests import q_lens
from kaudit_probes.draws import DRAWS, TOKENS, by_distribution, by_number
from kaudit_probes.engines.batches import offsets
from kaudit_probes.engines.reference_model import EPSILON, LARGEST, MODELS, SOFTCAP, positions, sampling
from kaudit_probes.engines.reference_step import last_hidden
from kaudit_probes.numerics import Computed
from kaudit_probes.oracle import (
    Attention,
    Request,
    Rules,
    allowed_logits,
    dequantised,
    gathered,
    indexable,
    project,
    rms_norm,
    silu_mul,
)
from kaudit_probes.poison import poison
from kaudit_probes.rotation import rotated


def poison_slots(inputs: Any) -> None:
    """Forget the new tokens' K and V: a run that does not write them shows."""
    for stored in (inputs.cache.k, inputs.cache.v):
        blank = gathered(stored, inputs.cache.slots)
        poison(blank)
        indexable(stored).index_copy_(0, inputs.cache.slots, indexable(blank))


def kept_rows(cache: Any) -> Callable[[], Computed]:
    """Turn the sign of all that stands in K and V; once the step has run, say how many rows changed that are no new
    token's.

    A row that is written by mistake is another request's, or nobody's: attention reads what stands there, by any
    textbook. An earlier run wrote the same there, hence the signs: a number is as likely with the other, and NaN stays
    NaN. Rows are compared by their bits."""
    stored = cache.k, cache.v
    for each in stored:
        if each.dtype == torch.int8:
            each.neg_()
        else:
            _bits(each).bitwise_xor_(torch.iinfo(_bits(each).dtype).min)
    before = [each.clone() for each in stored]

    def changed() -> Computed:
        others = torch.zeros(len(cache.k), dtype=torch.bool, device=cache.k.device)
        for was, now in zip(before, stored, strict=True):
            others |= (_bits(was) != _bits(now)).flatten(1).any(1)
        others[cache.slots] = False
        count = others.sum().double().view(1, 1)
        which = f"{int(count)} rows of the cache, the first of them {int(others.int().argmax())}"
        meaning = f"{which}, were written that are no new token's"
        return Computed("rope_kv_write", 1 + count, lambda: torch.ones_like(count), meaning=meaning)

    return changed


def _bits(stored: Tensor) -> Tensor:
    return stored.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[stored.element_size()])


def computed(cell: Cell, inputs: Any, done: Mapping[str, Tensor]) -> Iterator[Computed]:
    """`inputs` and `done`: Step.inputs, and Step.outputs after a run. Each op is held against what it was given."""

    def product(op: str, x: Tensor, weight: Any) -> Computed:
        return Computed(
            op, done[op], partial(project, x, weight), stored="fp8_e4m3" if cell.dtype == "fp8_e4m3" else ""
        )

    yield Computed("rms_norm", done["rms_norm"], partial(rms_norm, inputs.x, inputs.attention_norm, EPSILON))
    yield product("qkv_proj", done["rms_norm"], inputs.qkv)
    yield from _rope_kv_write(cell, inputs, done)
    attention = _attention(cell, inputs, done["rope_kv_write"])
    yield Computed("attention", done["attention"], attention)
    yield product("o_proj", done["attention"].flatten(1), inputs.o)
    normed, residual = done["add_rms_norm"]

    def total() -> Tensor:
        return torch.add(done["o_proj"].double(), inputs.x.double())

    yield Computed("add_rms_norm", residual, total)
    yield Computed("add_rms_norm", normed, lambda: rms_norm(total(), inputs.mlp_norm, EPSILON))
    yield product("gate_up_proj", normed, inputs.gate_up)
    yield Computed("silu_mul", done["silu_mul"], partial(silu_mul, done["gate_up_proj"]))
    whole = partial(last_hidden, cell, inputs, done, attention)
    yield dataclasses.replace(product("down_proj", done["silu_mul"], inputs.down), step=whole)
    logits = inputs.logits
    if "logits_mask" in done:
        logits = done["logits_mask"]
        without = {"grammar": inputs.logits.double}
        yield Computed("logits_mask", logits, partial(allowed_logits, inputs.logits, inputs.allowed), without=without)
    if how := sampling(cell):
        yield by_number(how, logits, done["sample"], inputs.draws)
    else:
        yield _greedy(logits, done["sample"])


def distribution(cell: Cell, inputs: Any, launch: Callable[[Tensor, Any], Tensor]) -> Iterator[Computed]:
    """Many tokens drawn from one small row of logits. `launch`: the engine's way to sample, of logits and inputs."""
    if how := sampling(cell):
        row = inputs.logits[0, :TOKENS] / 6  # so flat that both top-k and top-p cut tokens off
        generator = torch.Generator(row.device).manual_seed(0)
        numbers = torch.rand(DRAWS, generator=generator, device=row.device)
        tokens = launch(row.expand(DRAWS, -1).contiguous(), dataclasses.replace(inputs, draws=numbers))
        yield by_distribution(how, row, tokens)


def _greedy(logits: Tensor, tokens: Tensor) -> Computed:
    """The logit of the token chosen is the largest. A token that is none has no logit."""
    known = (tokens >= 0) & (tokens < logits.shape[1])
    chosen = logits.gather(1, torch.where(known, tokens, 0)[:, None]).masked_fill(~known[:, None], torch.nan)
    return Computed("sample", chosen, lambda: logits.double().amax(1, keepdim=True))


def _rope_kv_write(cell: Cell, inputs: Any, done: Mapping[str, Tensor]) -> Iterator[Computed]:
    """Rotated Q, and the rows of the new tokens in the cache: K rotated, V as it was."""
    heads, cache = cell.heads, inputs.cache
    widths = [heads.q * heads.dim, heads.kv * heads.dim, heads.kv * heads.v_dim]
    parts = torch.split(done["qkv_proj"], widths, dim=-1)
    q, k, v = (
        part.reshape(len(part), count, -1) for part, count in zip(parts, (heads.q, heads.kv, heads.kv), strict=True)
    )
    places = positions(cell).to(q.device)

    def turned(x: Tensor, rope: Rope = cell.rope) -> Tensor:
        return rotated(x, places, rope, MODELS[rope.scaling])

    def without(x: Tensor) -> dict[str, Callable[[], Tensor]]:
        unscaled = replace(cell.rope, scaling="none")
        scaled = {} if cell.rope == unscaled else {"rope scaling": partial(turned, x, unscaled)}
        return {"rope": x.double, **scaled}

    yield Computed("rope_kv_write", done["rope_kv_write"], partial(turned, q), without=without(q))
    yield _written(cell, cache.k, cache.k_scale, cache.slots, partial(turned, k), without(k))
    yield _written(cell, cache.v, cache.v_scale, cache.slots, v.double, {})


def _written(
    cell: Cell,
    stored: Tensor,
    scale: Tensor | None,
    slots: Tensor,
    kept: Callable[[], Tensor],
    without: Mapping[str, Callable[[], Tensor]],
) -> Computed:
    """A quantised cache keeps what is within the reach of its scale, and the nearest that is."""
    rows = gathered(stored, slots)
    if scale is None:
        return Computed("rope_kv_write", rows, kept, without=without)
    most = scale.double()[:, None] * LARGEST[cell.kv_dtype]

    def clamped(kept: Callable[[], Tensor]) -> Tensor:
        return kept().clamp(-most, most)

    return Computed(
        "rope_kv_write",
        dequantised(rows, scale),
        partial(clamped, kept),
        stored=cell.kv_dtype,
        without={feature: partial(clamped, other) for feature, other in without.items()},
    )


def _behind(page: int, rows: Tensor, pages: Tensor) -> Tensor:
    """The rows behind a request's last: the rest of its page; of one that is full, the page that the table names next,
    which is nobody's, or not the request's any more."""
    if rest := -len(rows) % page:
        return torch.arange(1, rest + 1, device=rows.device) + rows[-1]
    following = pages[len(rows) // page :][:1].long()  # none where the table ends with the request
    return (following[:, None] * page + torch.arange(page, device=rows.device)).flatten()


def _attention(cell: Cell, inputs: Any, q: Tensor) -> Attention:
    cache = inputs.cache

    def requests() -> Iterator[Request]:
        for number, (start, end) in enumerate(pairwise(offsets(q_lens(cell)).tolist())):
            if start == end:  # idle, or not there yet: it asks for nothing
                continue
            rows = cache.rows[number]
            given = inputs.masks.of(number) if cell.mask.kind == "custom" else None
            past = None
            if cell.layout.page:
                behind = _behind(cell.layout.page, rows, cache.page_table[number])
                past = gathered(cache.k, behind), gathered(cache.v, behind)
            yield Request(q[start:end], gathered(cache.k, rows), gathered(cache.v, rows), given, past)

    rules = Rules(
        cell.mask,
        cell.heads.dim**-0.5,
        SOFTCAP if "softcap" in cell.features else None,
        inputs.sinks,
        cache.k_scale,
        cache.v_scale,
    )
    return Attention(requests, rules, cell.layout.page)
