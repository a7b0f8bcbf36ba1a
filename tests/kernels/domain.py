"""The domain of a kernel as a matrix: what its `requires` leave of all that a cell can be, covered pair by pair.

The values of each axis stand here once, for all kernels, and those that a kernel names join them. What it requires
becomes the rules of its matrix (domain_rules.py), and kaudit's covering arrays do the rest: a new kernel, or a new
requirement, needs no line here, unless its V has a head dim of its own (_OWN_V). A row says all that a kernel is
compiled for; domain_draws.py draws the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any, Literal, get_args

from domain_rules import AXES, Device, meets, rules, sensible
from msgspec.structs import replace

from kaudit import cell as cells
from kaudit.cell import Cell, Feature, Heads, Layout, Mask, Rope, Shape
from kaudit.matrix import expand
from kaudit.matrix.lengths import ShapeSpec
from kaudit.matrix.model import Axes, Block, Matrix, ShapeChoice
from kaudit_kernels.dispatch import Kernel
from kaudit_probes.engines.reference import problem_of


@dataclass(frozen=True)
class Sizes:
    """How large it gets. A shape stands for those like it: as many queries, keys of as many parts (domain_draws.py)."""

    decode: tuple[str, ...]
    """Of attention that takes few queries: one and several, keys that are one part and that are more."""
    prefill: tuple[str, ...]
    """Of attention that takes any number of queries."""
    tokens: tuple[str, ...]
    """Of ops that take each token, or each request, by itself."""
    many_tokens: tuple[str, ...]
    """And of those that share a program among tokens where there are many."""
    hidden: int
    """The most elements of a token, of ops that see heads."""
    widths: tuple[str, ...]
    """Heads for ops that see a token as one row."""
    vocabularies: tuple[int, ...]
    longest: int
    """The most KV tokens of a request."""


COMPILED = Sizes(
    decode=("b3q1k2000", "b4q2k200", "b3q8k1500", "b40q1k200", "b1q1k900", "b3q2k1500"),
    prefill=("b3q1k2000", "b4q2k200", "b2q400k1500", "b2q16k150", "b3q60k700"),
    tokens=("b1q1k100", "b16q1k100", "b64q1k100", "b3q5k100", "b2q100k150"),
    many_tokens=("b9q1000k1100",),
    hidden=4096,
    widths=("h1x1x64", "h3x1x12", "h3x1x80", "h25x5x40", "h16x4x128", "h64x8x128"),
    vocabularies=(32, 96, 4096, 32_768),
    longest=3000,
)
INTERPRETED = Sizes(
    decode=("b2q1k270", "b4q2k60", "b2q8k270", "b2q1k60"),
    prefill=("b3q1k90", "b4q2k60", "b2q30k140", "b2q16k90"),
    tokens=("b1q1k40", "b20q1k40", "b3q5k40"),
    many_tokens=(),
    hidden=320,
    widths=("h1x1x64", "h3x1x12", "h3x1x80", "h5x1x128"),
    vocabularies=(32, 96, 4096),
    longest=290,
)

CORE = 3
"""Of the shapes, how many are tried with every score under every mask."""

LOOKED_AT = {
    "attention": ("kv_dtype", "kv_layout", "mask", "features"),
    "rope_kv_write": ("kv_dtype", "kv_layout", "rope"),
    "sample": ("features",),
}
"""The axes that change what an op computes, beside dtype, heads and shape."""

COMPILED_FOR: dict[str, tuple[Feature, ...]] = {"attention": ("softcap", "sinks"), "sample": ("top_k", "top_p")}
"""Features that make another kernel of it. Others only change what it finds: they come on top of a row."""

_SEES_HEADS = ("attention", "rope_kv_write")
_SEES_LOGITS = ("logits_mask", "sample")
_SHARES_PROGRAMS = ("rms_norm", "add_rms_norm")

_DIMS = (16, 64, 80, 96, 128, 192, 256)
_OWN_V = ((192, 128), (64, 256), (256, 80))
"""Heads whose V is of another dim. The first is DeepSeek's."""
_GROUPS = ((4, 2), (1, 3), (8, 1), (2, 4), (7, 2), (16, 1), (3, 1), (1, 8), (48, 1))
"""Query heads of a KV head, and KV heads."""
_FEWEST_HEADS = 6
_PAGES = (1, 5, 16, 128)
_WINDOWS = (17, 513)
"""One shorter than a part of a decode is, and one longer."""
_BASE = Cell.parse("decode/bf16/kv-bf16/h1x1x64/contiguous/causal/neox/plain/b3q1k100")


def rows(op: str, kernel: Kernel, dtypes: Sequence[str], sizes: Sizes, device: Device) -> list[Cell]:
    """Cells in which each pair of values occurs that the kernel takes, and of attention each triple that its scores
    hang on. Of each kernel others, in an order of its own: by its name the values are shuffled, from which they follow.
    """
    random = Random(f"{op} {kernel.name}")
    axes = _axes(op, kernel, dtypes, sizes, device)
    forbid = tuple(rules(kernel, axes, device))
    (first, *also) = (Block(_shuffled(each, random), cover) for each, cover in _blocks(op, axes))
    matrix = Matrix(kernel.name, first.axes, forbid, (), first.cover, sizes.longest, also=tuple(also))
    found = [_several(cell, kernel, device, random) for cell in expand(matrix).cells]
    return random.sample(found, len(found))


def fitting(kernel: Kernel, dtypes: Sequence[cells.DType]) -> list[cells.DType]:
    """Those dtypes of a cell that the kernel takes. With fp8 weights, for projections alone, a step is in bf16."""
    looks_at_weights = any(each.axis == "weight_dtype" for each in kernel.requires)
    return [
        dtype
        for dtype in dtypes
        if looks_at_weights or dtype != "fp8_e4m3"
        for problem in (problem_of(replace(_BASE, dtype=dtype, kv_dtype=dtype), 0, 0),)
        if not any(each.check(problem) for each in kernel.requires if each.axis in ("dtype", "weight_dtype"))
    ]


def _axes(op: str, kernel: Kernel, dtypes: Sequence[Any], sizes: Sizes, device: Device) -> Axes:
    """What there is to combine; what the kernel does not take is left to the rules."""
    varied = LOOKED_AT.get(op, ())
    heads = _heads(kernel, sizes.hidden, device) if op in _SEES_HEADS else [*map(Heads.parse, sizes.widths)]
    pages = _numbers(kernel, "page_size", _PAGES)
    layouts = [Layout("contiguous"), Layout("ragged"), *(Layout("paged", page) for page in pages)]
    masks = [Mask(kind) for kind in get_args(cells.MaskKind) if kind != "window"]
    masks += [Mask("window", window) for window in _WINDOWS]
    return Axes(
        phase=("decode",),
        dtype=tuple(dtypes),
        kv_dtype=("same", "fp8_e4m3", "fp8_e5m2", "int8") if "kv_dtype" in varied else ("same",),
        heads=tuple(heads[:1] if op in _SEES_LOGITS else heads),
        kv_layout=tuple(layouts) if "kv_layout" in varied else (Layout("paged", 16),),
        mask=tuple(masks) if "mask" in varied else (Mask("causal"),),
        rope=tuple(map(Rope, get_args(cells.RopeStyle))) if "rope" in varied else (Rope("neox"),),
        features=_features(op, kernel, device),
        shape=_shapes(op, kernel, sizes, device),
    )


def _features(op: str, kernel: Kernel, device: Device) -> tuple[tuple[Feature, ...], ...]:
    """None, one, the other and both of those that it is compiled for, each with what has to come along."""
    named = COMPILED_FOR.get(op, ())
    sets = [each for size in range(len(named) + 1) for each in combinations(named, size)]
    sets = [each for each in sets if meets(kernel, replace(_BASE, features=each), "features", device)]
    if "mask" in LOOKED_AT.get(op, ()):
        sets += [(*each, "speculative_tree") for each in sets]
    if any(needed.axis == "shared_mib" for needed in (*kernel.requires, *kernel.worth)):
        sets = [(*each, "prefix_share") for each in sets]  # it is made for one
    return tuple(tuple(sorted(each)) for each in sets)


def _shapes(op: str, kernel: Kernel, sizes: Sizes, device: Device) -> tuple[ShapeChoice, ...]:
    shapes = sizes.tokens + (sizes.many_tokens if op in _SHARES_PROGRAMS else ())
    if op == "attention":
        many = replace(_BASE, shape=Shape.parse(sizes.prefill[-1]))
        shapes = sizes.prefill if meets(kernel, many, "shape", device) else sizes.decode
    return tuple(ShapeChoice(ShapeSpec.of(Shape.parse(each)), ("decode",)) for each in shapes)


def _blocks(op: str, axes: Axes) -> Iterator[tuple[Axes, Literal[2, 3]]]:
    """Pairs of everything; and triples of what the scores of attention hang on, of few heads and layouts."""
    scores = [len(set(COMPILED_FOR.get(op, ())).intersection(each)) for each in axes.features]
    if op != "attention" or not any(scores):
        yield axes, 2
        return
    # One by one in the second block, so that in the first none and all at once will do.
    yield replace(axes, features=tuple(each for each, n in zip(axes.features, scores, strict=True) if n != 1)), 2
    few = sorted(axes.heads, key=lambda heads: heads.q * heads.dim)[:2]
    yield (
        replace(
            axes,
            heads=tuple(few),
            kv_layout=tuple(map(Layout.parse, ("contiguous", "paged16"))),
            mask=tuple(each for each in axes.mask if each.window != _WINDOWS[0]),
            features=tuple(each for each, n in zip(axes.features, scores, strict=True) if n < 2),
            shape=axes.shape[:CORE],
        ),
        3,
    )


def _heads(kernel: Kernel, hidden: int, device: Device) -> list[Heads]:
    """Each head dim that the kernel takes, some with a V of its own, and groups of all sizes among them."""

    def fit(heads: Heads) -> bool:
        return heads.q * heads.dim <= hidden and meets(kernel, replace(_BASE, heads=heads), "heads", device)

    dims = [dim for dim in _numbers(kernel, "head_dim", _DIMS) if fit(Heads(1, 1, dim, dim))]
    pairs = [(dim, dim) for dim in (*dims, *dims)[: max(len(dims), _FEWEST_HEADS)]]
    found = []
    for number, (dim, v_dim) in enumerate((*pairs, *_OWN_V)):
        groups = (*_GROUPS, *_GROUPS)[number % len(_GROUPS) :]
        tried = (Heads(group * kv_heads, kv_heads, dim, v_dim) for group, kv_heads in groups)
        found += list(filter(fit, tried))[:1]
    return list(dict.fromkeys(found))


def _several(cell: Cell, kernel: Kernel, device: Device, random: Random) -> Cell:
    """Two queries stand for any number below eight."""
    if cell.shape.q_len != 2:
        return cell
    tried = [replace(cell, shape=replace(cell.shape, q_len=q_len)) for q_len in range(2, 8)]
    return random.choice([each for each in tried if sensible(kernel, each, device)])


def _shuffled(axes: Axes, random: Random) -> Axes:
    each = [getattr(axes, name) for name in AXES]
    return Axes(*(tuple(random.sample(values, len(values))) for values in each))


def _numbers(kernel: Kernel, axis: str, values: Sequence[int]) -> list[int]:
    """The values, and those that the kernel's own requirements name."""
    named = {bound for each in kernel.requires if each.axis == axis for bound in each.bounds if isinstance(bound, int)}
    return sorted({*values, *named, *(2 * each for each in named)})
