"""A model as the text of a matrix file."""

import json
from collections.abc import Iterable, Iterator, Sequence

from kaudit.cell import Feature, Heads, Phase
from kaudit.hf_config.model import Group, Model
from kaudit.matrix.heads import split
from kaudit.matrix.lengths import Length, ShapeSpec
from kaudit.wording import count

SHORTEST = 16
"""Tokens that a model must take for the four phases to have lengths of their own."""

_PHASES: dict[str, tuple[Phase, ...]] = {
    "plain": ("prefill", "chunked_prefill", "decode", "mixed"),
    "expanded": ("prefill", "chunked_prefill"),
    "absorbed": ("decode",),
}
_LAYOUTS = {"plain": "paged16, ragged, contiguous", "expanded": "paged16, ragged, contiguous"}
_ABSORBED_LAYOUTS = "paged16, paged64"
"""Kernels over the latent page it; FlashMLA's pages are of 64."""


def matrix_yaml(model: Model, name: str, tps: Sequence[int]) -> tuple[str, tuple[str, ...]]:
    """The text, and the notes of what it does not hold.

    Raises ValueError, one line, where no number of ranks suits every layer's heads, or sequences are too short.
    """
    if min(group.most for group in model.groups) < SHORTEST:
        raise ValueError(f"sequences of fewer than {SHORTEST} tokens")
    suiting, unsuited = _ranks(model.groups, tps)
    notes = (*model.notes, *unsuited)
    lines = [f"# Of a {model.kind} model, by kaudit matrix from-config."]
    if notes:
        lines += ["# True of it and not in these cells:", *(f"# - {note}" for note in notes)]
    lines += [f"name: {json.dumps(name, ensure_ascii=False)}", f"max_len: {model.max_len}"]
    first, *rest = model.groups
    lines += _block(model, first, suiting)
    if rest:
        lines.append("also:")
    for group in rest:
        comment, *block = _block(model, group, suiting)
        lines += [f"  {comment}", f"  - {block[0]}", *(f"    {line}" for line in block[1:])]
    return "\n".join(lines) + "\n", notes


def _ranks(groups: Iterable[Group], tps: Sequence[int]) -> tuple[list[int], list[str]]:
    suiting, unsuited = [], []
    for tp in dict.fromkeys(tps):
        try:
            for group in groups:
                split(group.heads, tp)
            suiting.append(tp)
        except ValueError as error:
            unsuited.append(f"{error}".split(";")[0])
    if not suiting:
        raise ValueError(f"{' and '.join(unsuited)}; write other numbers for --tp")
    return suiting, unsuited


def _block(model: Model, group: Group, tps: Sequence[int]) -> Iterator[str]:
    form = "" if group.form == "plain" else f", {group.form} latent attention"
    yield f"# {count(group.layers, 'layer')}{form}"
    yield "axes:"
    dtypes = [model.dtype]
    if model.dtype == "fp32":
        dtypes.append("bf16")  # what such a checkpoint is served in
    kv_dtypes = dict.fromkeys(("same", "fp8_e4m3", model.kv_cache or "same"))
    cache = f"  # the checkpoint's own: {model.kv_cache}" if model.kv_cache else ""
    heads: dict[Heads, list[str]] = {}
    for tp in tps:
        heads.setdefault(split(group.heads, tp), []).append(str(tp))
    ranks = ", ".join("=".join(own) for own in heads.values())
    yield f"  phase: [{', '.join(_PHASES[group.form])}]"
    yield f"  dtype: [{', '.join(dtypes)}]"
    yield f"  kv_dtype: [{', '.join(kv_dtypes)}]{cache}"
    yield f"  heads: [{', '.join(map(str, heads))}]  # tp {ranks}"
    yield f"  kv_layout: [{_LAYOUTS.get(group.form, _ABSORBED_LAYOUTS)}]"
    yield f"  mask: [{group.mask}]"
    yield f"  rope: [{group.rope}]"
    yield f"  features: [{_features(group.features)}]"
    yield "  shape:"
    for phase in _PHASES[group.form]:
        shapes = dict.fromkeys(str(shape) for shape in (*_shapes(phase, group.most), *_window_shapes(phase, group)))
        yield f"    {phase}: [{', '.join(shapes)}]"


def _features(features: tuple[Feature, ...]) -> str:
    return "+".join(features) or "plain"


def _shapes(phase: Phase, most: int) -> list[ShapeSpec]:
    """What is served, cut to the model's length: even and uneven, short and long, one request and many."""

    def shape(batch: int, q_len: int, kv_len: int, skew: bool = False) -> ShapeSpec:
        return ShapeSpec(batch, Length(min(q_len, most)), Length(min(kv_len, most)), skew)

    chunk = most // 4
    match phase:
        case "prefill":
            return [shape(1, 2048, 2048), shape(4, 500, 500)]
        case "chunked_prefill":
            return [shape(2, min(256, chunk), 4096), shape(1, min(64, chunk), 8192)]
        case "decode":
            return [shape(1, 1, 32768), shape(8, 1, 4096), shape(8, 1, 8192, True), shape(64, 1, 1024)]
        case "mixed":
            return [shape(8, min(128, chunk), 2048, True)]


def _window_shapes(phase: Phase, group: Group) -> list[ShapeSpec]:
    """Just beyond the window."""
    room = group.most - group.mask.window
    if group.mask.kind != "window" or room < 1:
        return []
    if phase == "decode":
        return [ShapeSpec(8, Length(1), Length(1, "window"))]
    if phase == "chunked_prefill" and room >= 64:
        return [ShapeSpec(1, Length(64), Length(64, "window"))]
    return []
