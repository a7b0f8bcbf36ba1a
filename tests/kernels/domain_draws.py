"""The problems of a kernel's rows: under which further features each is tried, and the shapes, which hypothesis draws.
Beside them stand those at the bounds that no row meets (domain_bounds.py).

Cells are odd: at the bounds of pages, windows, tiles and parts, and one beside them. A kernel is compiled for a row,
not for its shapes: what is drawn has as many queries, or nearly, and keys that make one part, or more, as the row's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace as replaced
from itertools import combinations
from typing import Any, get_args
from zlib import crc32

from domain import COMPILED_FOR, LOOKED_AT, Sizes, rows
from domain_bounds import Example, at_bounds
from domain_rules import Device, sensible
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kaudit import cell as cells
from kaudit.cell import Cell, Feature, Mask, Rope, Shape
from kaudit_kernels.catalogue.shared import OUTSIDE
from kaudit_kernels.dispatch import Kernel
from kaudit_probes.engines.reference import problem_of

ONE_PART = 256
"""Keys of a request that no decode kernel splits."""
FEW = 8
"""Queries up to which a kernel is compiled for their number."""

LONGEST = 262_144
"""Logits of a row that nothing bounds: as many as Gemma 4's."""

SMALL = 4096
"""Elements of the hidden states of as many requests as an interpreter does in seconds."""

_EDGES = (1, 16, 32, 64, 128, 256, 512, 1024, 2048)
_SHORT_WINDOWS = (1, 16, 17, 64, 100)
_LONG_WINDOWS = (257, 512, 513, 1024)
_OFFSETS = (0, 255, 2049, 32767, 131071)

_TWO = settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def examples(
    op: str, kernel: Kernel, dtypes: Sequence[Any], sizes: Sizes, device: Device, part: slice = slice(None)
) -> list[Example]:
    """Distinct problems on the device, row by row, all of which the kernel takes. `part`: of the rows."""
    known = rows(op, kernel, dtypes, sizes, device)
    found = {
        (cell, problem.vocabulary): (cell, problem) for cell, problem in at_bounds(op, kernel, known, device)[part]
    }
    vocabularies = _vocabularies(op, sizes)
    for row, further in list(_spread(op, kernel, known, device))[part]:
        tried = [(row, vocabulary) for vocabulary in vocabularies]
        tried += _drawn([row, *further], sizes.longest, vocabularies, f"{op} {kernel.name} {row.id}")
        found |= {each: _problem(*each, device) for each in tried if sensible(kernel, each[0], device)}
    return list(found.values())


def few_examples(op: str, kernel: Kernel, dtypes: Sequence[Any], sizes: Sizes, device: Device) -> list[Example]:
    """Of such problems as few as meet each mask, KV dtype, layout and feature that attention sees, and small bounds."""
    further = [each for each in _further(op) if op == "attention" and each not in OUTSIDE]
    met, wanted = set[object](), list[Cell]()
    known = rows(op, kernel, dtypes, sizes, device)
    for row in known:
        more = [each for each in further if sensible(kernel, under(row, (each,)), device)][:1]
        values = {row.mask.kind, kv_dtype(row), row.layout.kind, row.shape.q_len > 1, *row.features, *more}
        if not values <= met:
            met |= values
            further = [each for each in further if each not in more]
            wanted.append(under(row, more))
    tried = _drawn(wanted, sizes.longest, _vocabularies(op, sizes), f"{op} {kernel.name}")
    # The interpreter runs one program after another, and of the widest token the weights alone are gigabytes.
    bounds = [each for each in at_bounds(op, kernel, known, device) if each[1].batch * each[1].hidden <= SMALL]
    return bounds + [_problem(*each, device) for each in tried if sensible(kernel, each[0], device)]


def _problem(cell: Cell, vocabulary: int, device: Device) -> Example:
    return cell, replaced(problem_of(cell, *device), vocabulary=vocabulary)


def _vocabularies(op: str, sizes: Sizes) -> tuple[int, ...]:
    """Other ops do not see the logits; and to the mask of a grammar, nothing is compiled for how many they are."""
    return {"sample": sizes.vocabularies, "logits_mask": (*sizes.vocabularies, LONGEST)}.get(op, sizes.vocabularies[:1])


def _spread(op: str, kernel: Kernel, found: Sequence[Cell], device: Device) -> Iterator[tuple[Cell, list[Cell]]]:
    """Each row, and the same under each further feature that meets something new there.

    New is a value of the row, or its mask with its KV dtype, with one query or several, with keys of one part or of
    more. Two features of attention meet once, and so does one alone an op that does not see it.
    """
    further = _further(op)
    tried: list[tuple[Feature, ...]] = [(each,) for each in further]
    if op == "attention":
        tried += combinations(further, 2)
    met: set[object] = set()
    for row in found:
        values: list[object] = [(name, getattr(row, name)) for name in ("dtype", "heads", "layout", "rope", "features")]
        several, long = row.shape.q_len > 1, row.shape.kv_len > ONE_PART
        values += [(row.mask.kind, name) for name in (kv_dtype(row), f"several {several}", f"long {long}")]
        taken = []
        for more in tried:
            news = {(more, value) for value in values} if len(more) == 1 and op in COMPILED_FOR else {more}
            if not news <= met and sensible(kernel, cell := under(row, more), device):
                met |= news
                taken.append(cell)
        yield row, taken


def kv_dtype(cell: Cell) -> str:
    return "same" if cell.kv_dtype == cell.dtype else cell.kv_dtype


def _further(op: str) -> list[Feature]:
    """Features that no row has of itself."""
    of_rows = (*COMPILED_FOR.get(op, ()), *(("speculative_tree",) if "mask" in LOOKED_AT.get(op, ()) else ()))
    return [each for each in get_args(Feature) if each not in of_rows]


def under(row: Cell, more: Iterable[Feature]) -> Cell:
    """The row with these features, or without those that it has. No keys, nothing to share; and a tree has its mask."""
    features = set(row.features).symmetric_difference(more)
    if "vacant" in features:
        features.discard("prefix_share")
    mask = Mask("tree") if "speculative_tree" in features else row.mask
    return replace(row, mask=mask, features=tuple(sorted(features)))


def _drawn(wanted: Sequence[Cell], longest: int, vocabularies: Sequence[int], name: str) -> list[tuple[Cell, int]]:
    """For each of the cells one like it, and a vocabulary."""
    made: list[tuple[tuple[Cell, int], ...]] = []

    @seed(crc32(name.encode()))
    @_TWO
    @given(st.tuples(*(_like(each, longest, vocabularies) for each in wanted)))
    def collect(each: tuple[tuple[Cell, int], ...]) -> None:
        made.append(each)

    collect()
    return list(made[-1])  # the first is the least there is, whatever the name


@st.composite
def _like(draw: st.DrawFn, row: Cell, longest: int, vocabularies: Sequence[int]) -> tuple[Cell, int]:
    """A cell of another shape that a kernel for the row serves too, and a vocabulary."""
    shape, page, mask = row.shape, row.layout.page, row.mask
    batch = draw(st.integers(_half(shape.batch) + 1, max(shape.batch, 2 * _half(shape.batch))))
    if mask.kind == "window":
        mask = replace(mask, window=draw(st.sampled_from(_SHORT_WINDOWS if mask.window < ONE_PART else _LONG_WINDOWS)))
    edges = sorted({at + off for at in (*_EDGES, page, 2 * page, mask.window) for off in (-1, 0, 1)})
    q_len = shape.q_len
    if q_len > FEW:
        q_len = draw(_near(_half(q_len) + 1, 2 * _half(q_len), edges))
    least = q_len + (2 * page if "prefix_share" in row.features else 0)
    low, high = (1, ONE_PART) if shape.kv_len <= ONE_PART else (ONE_PART + 1, longest)
    # Of skewed lengths the least is the longest over the batch.
    skew = batch > 1 and least * batch <= high and draw(st.booleans())
    kv_len = draw(_near(max(low, least * batch if skew else least), high, edges))
    rope = row.rope
    if rope.style != "none":
        rope = Rope(rope.style, draw(st.sampled_from(get_args(cells.Scaling))), draw(st.sampled_from(_OFFSETS)))
    phase = draw(st.sampled_from(_phases(row, batch, q_len, kv_len, low)))
    shape = Shape(batch, q_len, q_len if phase == "prefill" else kv_len, skew)
    return replace(row, phase=phase, mask=mask, rope=rope, shape=shape), draw(st.sampled_from(vocabularies))


def _phases(row: Cell, batch: int, q_len: int, kv_len: int, low: int) -> list[cells.Phase]:
    """In which such lengths come; a prefill has as many keys as queries, but no fewer than `low`."""
    phases: list[cells.Phase] = ["decode"]
    if row.mask.kind == "tree" or q_len == 1:
        return phases
    if q_len < kv_len:
        phases += ["chunked_prefill", "mixed"][: 2 if batch > 1 else 1]
    if q_len >= low and "prefix_share" not in row.features:
        phases.append("prefill")
    return phases


def _near(low: int, high: int, edges: Sequence[int]) -> st.SearchStrategy[int]:
    within = [edge for edge in edges if low <= edge <= high]
    return st.sampled_from(within) | st.integers(low, high) if within else st.integers(low, high)


def _half(number: int) -> int:
    """The largest power of two below a number; 0 of 1. Kernels are compiled for powers of two of requests and rows."""
    return 1 << (number - 1).bit_length() - 1 if number > 1 else 0
