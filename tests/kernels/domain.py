"""Draws cells from the domain of a kernel: from what its `requires` say, within all that a cell can be.

Cells are small, so that Triton's interpreter gets through them, and odd: at the bounds of the requirements, at those of
pages, windows and tiles, and one beside them. A new kernel, or a new requirement, needs no line here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any, get_args

from hypothesis import assume
from hypothesis import strategies as st
from msgspec.structs import replace

from kaudit import cell as cells
from kaudit.applicable import inapplicable
from kaudit.cell import Cell, Heads, Layout, Mask, Rope, Shape
from kaudit_kernels.admission import Inadmissible, admit
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import features as names
from kaudit_probes.engines.reference import problem_of


@dataclass(frozen=True)
class Sizes:
    """The most of each that is drawn; lengths in tokens of one request, `hidden` in elements of a token."""

    hidden: int
    kv_heads: int
    group: int
    batch: int
    q_len: int
    kv_len: int
    vocabulary: int
    shapes: int
    """Of one cell, how many are tried: a kernel is compiled for the rest of it, not for its shape."""


INTERPRETED = Sizes(hidden=640, kv_heads=2, group=8, batch=3, q_len=34, kv_len=150, vocabulary=4096, shapes=1)
COMPILED = Sizes(hidden=8192, kv_heads=8, group=48, batch=9, q_len=600, kv_len=3000, vocabulary=151_936, shapes=5)

_GROUPS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48)
_HEAD_DIMS = (16, 64, 72, 80, 96, 128, 192, 256)
_PAGES = (1, 5, 8, 16, 48, 64, 128)
_TILES = (1, 16, 32, 64, 128, 256, 512, 1024, 2048)
_VOCABULARIES = (32, 96, 4096, 32_768, 151_936)
"""A mask of the grammar has whole words of 32 tokens; 151,936 is Qwen's."""
_OFFSETS = (0, 255, 2049, 32767, 131071)


Example = tuple[Cell, Problem]


@st.composite
def drawn(
    draw: st.DrawFn, kernel: Kernel, dtypes: Iterable[str], sizes: Sizes, devices: Sequence[tuple[int, int]]
) -> list[Example]:
    """Cells that differ in shape and phase, and their problems on one of the devices, each an (sm, sm_count).

    They meet all that the kernel requires. `worth` is not looked at: where a kernel is slow it has to be right, too.
    """

    def pick(axis: str, values: Iterable[Any], most: int | None = None, **beside: Any) -> Any:
        return draw(st.sampled_from(_taken(kernel, axis, values, most, beside)))

    dtype = draw(st.sampled_from(fitting(kernel, dtypes)))
    kv_dtype = pick("kv_dtype", (dtype, "fp8_e4m3", "fp8_e5m2", "int8"), dtype=dtype)
    head_dim = pick("head_dim", _HEAD_DIMS)
    kv_heads = draw(st.integers(1, max(1, min(sizes.kv_heads, sizes.hidden // head_dim))))
    group = pick("group", _GROUPS, max(1, min(sizes.group, sizes.hidden // head_dim // kv_heads)))
    v_head_dim = pick("v_head_dim", (64, head_dim), head_dim=head_dim)
    layout = pick("kv_layout", get_args(cells.LayoutKind))
    page = pick("page_size", _PAGES) if layout == "paged" else 0
    mask = pick("mask", get_args(cells.MaskKind))
    rope = pick("rope", get_args(cells.RopeStyle))
    whole = Cell(
        "decode",
        dtype,
        kv_dtype,
        Heads(kv_heads * group, kv_heads, head_dim, v_head_dim),
        Layout(layout, page),
        Mask(mask, draw(st.sampled_from((1, 16, 17, 64, 100, 1024))) if mask == "window" else 0),
        Rope(rope, pick("rope_scaling", get_args(cells.Scaling)), draw(st.sampled_from(_OFFSETS)))
        if rope != "none"
        else Rope(rope),
        _features(draw, kernel, layout, mask),
        Shape(1, 1, 1),
    )
    device = draw(st.sampled_from(devices))
    vocabulary = pick("vocabulary", _VOCABULARIES, sizes.vocabulary)
    lengths = sorted({edge + off for edge in (*_TILES, page, 2 * page) for off in (-1, 0, 1) if edge + off > 0})
    found: list[Example] = []
    for _ in range(sizes.shapes):
        batch = pick("batch", range(1, sizes.batch + 1), sizes.batch)
        q_len = pick("q_len", lengths, sizes.q_len)
        kv_len = draw(st.sampled_from([q_len, *(each for each in lengths if q_len < each <= sizes.kv_len)]))
        shaped = replace(whole, shape=Shape(batch, q_len, kv_len, draw(st.booleans())))
        phased = [replace(shaped, phase=phase) for phase in get_args(cells.Phase)]
        each = [(cell, replaced(problem_of(cell, *device), vocabulary=vocabulary)) for cell in phased]
        fit = [(cell, problem) for cell, problem in each if inapplicable(cell) is None and _meets(kernel, problem)]
        if fit:
            found.append(draw(st.sampled_from(fit)))
    assume(found)
    return found


def _features(draw: st.DrawFn, kernel: Kernel, layout: str, mask: str) -> tuple[cells.Feature, ...]:
    """Two at most of those that the kernel takes; some come with another axis, or not at all."""
    named = [each for each in kernel.requires if each.axis == names.name]
    taken = [
        each
        for each in get_args(cells.Feature)
        if named and all(needed.holds(frozenset({each})) for needed in named)
        if each != "speculative_tree" and (each != "prefix_share" or layout == "paged")
    ]
    some = draw(st.lists(st.sampled_from(taken), unique=True, max_size=2)) if taken else []
    return tuple(sorted([*some, *(["speculative_tree"] if mask == "tree" else [])]))


def _meets(kernel: Kernel, problem: Problem) -> bool:
    try:
        admit(problem)
    except Inadmissible:
        return False
    return all(unmet.worth for unmet in kernel.unmet(problem))


def fitting(kernel: Kernel, dtypes: Iterable[str]) -> list[str]:
    """Those dtypes of a cell that the kernel takes. With fp8 weights the rest of a step is in bf16."""
    needed = [each for each in kernel.requires if each.beside is None]
    return [
        dtype
        for dtype in dtypes
        for seen in ({"weight_dtype": dtype, "dtype": "bf16" if dtype == "fp8_e4m3" else dtype},)
        if all(each.holds(seen[each.axis]) for each in needed if each.axis in seen)
    ]


def _taken(kernel: Kernel, axis: str, values: Iterable[Any], most: int | None, beside: dict[str, Any]) -> list[Any]:
    """Those of `values`, and of the numbers that the kernel's own requirements name, that these let through, sorted.

    `beside`: axes that are drawn already, which the kernel may hold this one against.
    """
    needed = [each for each in kernel.requires if each.axis == axis]
    pool = {*values, *(bound for each in needed for bound in each.bounds if isinstance(bound, int))}
    if most is not None:
        pool = {value for value in pool if value <= most}
    for each in needed:
        if each.beside is None:
            pool = {value for value in pool if each.holds(value)}
        elif each.beside in beside:
            pool = {value for value in pool if each.holds(value, beside[each.beside])}
    assume(pool)
    return sorted(pool)
