"""Which combinations of axis values mean something at all, before any engine is asked."""

from collections.abc import Callable
from inspect import signature

from msgspec import Struct

from kaudit.cell import Cell, DType, Feature, KvDType, Layout, Mask, Phase, Shape
from kaudit.requests import lens


def _lengths_suit_phase(phase: Phase, shape: Shape) -> str | None:
    q_len, kv_len = shape.q_len, shape.kv_len
    match phase:
        case "prefill" if q_len != kv_len:
            return f"prefill has no earlier tokens, yet q_len={q_len} and kv_len={kv_len} (chunked_prefill has)"
        case "chunked_prefill" | "mixed" if not 1 < q_len < kv_len:
            return f"{phase} adds a chunk to earlier tokens, needs 1 < q_len < kv_len, has {q_len} and {kv_len}"
        case "mixed" if shape.batch < 2:
            return f"mixed needs a chunk and a decode in one batch, has batch={shape.batch}"
        case "decode" if q_len > kv_len:
            return f"decode sees its own tokens, needs q_len <= kv_len, has {q_len} and {kv_len}"
    return None


def _kv_is_as_the_model_or_quantised(dtype: DType, kv_dtype: KvDType) -> str | None:
    if kv_dtype in (dtype, "fp8_e4m3", "fp8_e5m2", "int8"):
        return None
    return f"kv_dtype={kv_dtype} is neither the model's {dtype} nor a quantised type"


def _tree_has_its_mask(mask: Mask, features: tuple[Feature, ...]) -> str | None:
    if (mask.kind == "tree") == ("speculative_tree" in features):
        return None
    return "the tree mask and the feature speculative_tree come together or not at all"


def _tree_is_decoded(phase: Phase, mask: Mask) -> str | None:
    if mask.kind != "tree" or phase == "decode":
        return None
    return f"a speculative tree is verified in decode, not in {phase}"


def _shared_prefix_has_pages(phase: Phase, layout: Layout, features: tuple[Feature, ...]) -> str | None:
    if "prefix_share" not in features or (layout.kind == "paged" and phase != "prefill"):
        return None
    return "prefix_share shares pages of earlier tokens, needs a paged layout and a phase that has them"


def _shared_prefix_is_somebody_else_s(features: tuple[Feature, ...], shape: Shape) -> str | None:
    if "prefix_share" not in features or shape.batch > 1:
        return None
    return f"prefix_share needs a request to share with, has batch={shape.batch}"


def _shared_prefix_fills_a_page(
    phase: Phase, layout: Layout, features: tuple[Feature, ...], shape: Shape
) -> str | None:
    """Shared are whole pages of the first half of the shortest request's earlier tokens."""
    if "prefix_share" not in features or layout.kind != "paged":
        return None
    least = 2 * layout.page
    shortest = min(kv_len - q_len for q_len, kv_len in lens(phase, features, shape))
    if shortest >= least:
        return None
    return f"prefix_share shares whole pages of half the earlier tokens, needs {least} in each request, has {shortest}"


def _histories_are_of_pages(layout: Layout, features: tuple[Feature, ...]) -> str | None:
    told = [name for name in ("cancelled", "preempted", "stale_branch", "bad_last_page") if name in features]
    if not told or layout.kind == "paged":
        return None
    return f"{' and '.join(told)} is told of pages, needs a paged layout"


def _somebody_brings_a_token(features: tuple[Feature, ...], shape: Shape) -> str | None:
    without = [name for name in ("idle", "vacant") if name in features]
    if len(without) > 1:
        return "idle and vacant both speak of the last request; name one"
    if without and shape.batch < 2:
        return f"{without[0]} needs another request that brings tokens, has batch={shape.batch}"
    return None


def _memory_lies_in_one_way(features: tuple[Feature, ...]) -> str | None:
    lying = [name for name in ("transposed", "sliced", "broadcast") if name in features]
    return f"inputs lie in one way, not {' and '.join(lying)}; name one" if len(lying) > 1 else None


class Law(Struct, frozen=True):
    """`check` is told these fields of a cell and nothing else, so on nothing else can it depend."""

    fields: tuple[str, ...]
    check: Callable[..., str | None]

    def broken_by(self, cell: Cell) -> str | None:
        """How, or None."""
        return self.check(*(getattr(cell, field) for field in self.fields))


LAWS = tuple(
    Law(tuple(signature(check).parameters), check)
    for check in (
        _lengths_suit_phase,
        _kv_is_as_the_model_or_quantised,
        _tree_has_its_mask,
        _tree_is_decoded,
        _shared_prefix_has_pages,
        _shared_prefix_is_somebody_else_s,
        _shared_prefix_fills_a_page,
        _histories_are_of_pages,
        _somebody_brings_a_token,
        _memory_lies_in_one_way,
    )
)


def inapplicable(cell: Cell) -> str | None:
    """Why the combination contradicts itself, or None. Such a cell enters the table as Skipped with this reason."""
    for law in LAWS:
        why = law.broken_by(cell)
        if why is not None:
            return why
    return None
