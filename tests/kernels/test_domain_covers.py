"""What test_domain.py tries on a GPU: all that a kernel's `requires` let through, pair by pair. Drawn here, not run.

On an H200; on another GPU the same cells are drawn, but for those that its kernels do not take.
"""

import re
from collections import defaultdict
from functools import cache
from itertools import combinations, product
from operator import attrgetter
from typing import Any, get_args

import pytest
from domain import COMPILED, COMPILED_FOR, fitting, rows
from domain_bounds import at_bounds, numbers, stands_at
from domain_draws import FEW, ONE_PART, Example, examples, kv_dtype
from domain_rules import sensible
from launches import Compiled, launch, recording
from msgspec.structs import replace
from test_domain import FAST, each_kernel

from kaudit.cell import Cell, DType, Mask, Shape
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel

pytest.importorskip("triton")

H200 = (90, 132)
CPU = (0, 0)

MOST_COMPILED = 1_100
"""Of all kernels together. A norm takes Triton 3.7 about 0.2 seconds, flash_prefill 1.2, flash_prefill_tma 3: eleven
minutes of one core, which the GPU's tests share among several."""

GPU = [(op, kernel) for op, kernel in FAST if not kernel.never(H200[0])]
ATTENTION = [kernel for op, kernel in FAST if op == "attention"]


@cache
def tried(op: str, name: str) -> list[Example]:
    kernel = _kernel(op, name)
    return examples(op, kernel, fitting(kernel, get_args(DType)), COMPILED, _device(kernel))


@cache
def compiled(op: str, name: str) -> list[set[Compiled]]:
    """Of each problem that is tried, what is launched."""
    found = []
    for _, problem in tried(op, name):
        with recording() as launched:
            launch(op, _kernel(op, name), problem)
        found.append(set(launched))
    return found


def _kernel(op: str, name: str) -> Kernel:
    return next(kernel for kernel in CATALOGUE[op] if kernel.name == name)


def _device(kernel: Kernel) -> tuple[int, int]:
    return CPU if kernel.never(H200[0]) else H200


@each_kernel
def test_every_value_that_a_requirement_names_is_tried(op: str, kernel: Kernel) -> None:
    problems = [problem for _, problem in tried(op, kernel.name)]
    for needed in kernel.requires:
        seen = [getattr(problem, needed.axis) for problem in problems]
        for bound in needed.bounds:
            if isinstance(bound, str):
                assert any(bound in each if needed.axis == "features" else bound == each for each in seen), bound
        for beside in needed.beside if "the same as" in needed.needed else ():
            assert any(getattr(problem, needed.axis) == getattr(problem, beside) for problem in problems)


@each_kernel
def test_every_number_that_a_requirement_names_is_tried_where_it_bounds(op: str, kernel: Kernel) -> None:
    """As many requests, as wide a token, as long a vocabulary as the kernel takes, and each factor's odd multiples."""
    problems = [problem for _, problem in tried(op, kernel.name)]
    for needed, bound in numbers(kernel):
        assert any(stands_at(needed, bound, problem) for problem in problems), f"{needed}: {bound}"


@each_kernel
def test_every_pair_of_values_is_tried(op: str, kernel: Kernel) -> None:
    known = _rows(op, kernel)
    said = [_said(op, row) for row in known]
    for axes in combinations(said[0], 2):
        met = {tuple(each[axis] for axis in axes) for each in said}
        missing = set(product(*({each[axis] for each in said} for axis in axes))) - met
        assert not [pair for pair in missing if _can_be(kernel, known, dict(zip(axes, pair, strict=True)))]


@pytest.mark.parametrize("kernel", ATTENTION, ids=attrgetter("name"))
def test_every_feature_is_tried_under_every_mask_with_every_kv_dtype(kernel: Kernel) -> None:
    """And what changes the scores with one query and with several, of keys in one part and in more."""
    known = _rows("attention", kernel)
    features = {str(feature) for needed in kernel.requires if needed.axis == "features" for feature in needed.bounds}
    met: set[object] = set()
    for cell, problem in tried("attention", kernel.name):
        # Who shares no page has no such feature, whatever it says.
        told = cell.features if problem.shared_prefix or "prefix_share" not in cell.features else ()
        met |= set(product(told, (cell.mask.kind,), (kv_dtype(cell), *_shape(cell.shape))))

    def can_be(feature: str, mask: Mask, **more: Any) -> bool:
        return _can_be(kernel, known, more | {"mask": mask, feature: True})

    kv_dtypes = {kv_dtype(row) for row in known}
    shapes = [Shape(3, q_len, kv_len) for q_len, kv_len in product((1, 2), (200, 1500))]
    for feature, mask in product(features - {"speculative_tree"}, {row.mask for row in known}):
        for kv in kv_dtypes:
            assert (feature, mask.kind, kv) in met or not can_be(feature, mask, kv_dtype=kv), (feature, mask, kv)
        for shape in shapes if feature in COMPILED_FOR["attention"] else ():
            wanted = set(product((feature,), (mask.kind,), _shape(shape)))
            assert wanted <= met or not can_be(feature, mask, shape=shape), (feature, mask, shape)


def _shape(shape: Shape) -> tuple[str, str]:
    return f"several queries: {shape.q_len > 1}", f"several parts: {shape.kv_len > ONE_PART}"


def _rows(op: str, kernel: Kernel) -> list[Cell]:
    return rows(op, kernel, fitting(kernel, get_args(DType)), COMPILED, _device(kernel))


def _said(op: str, row: Cell) -> dict[str, Any]:
    """What a row says, axis by axis; a feature is one. Two queries stand for any number below eight."""
    shape = replace(row.shape, q_len=2) if 1 < row.shape.q_len < FEW else row.shape
    axes = {"dtype": row.dtype, "kv_dtype": kv_dtype(row), "heads": row.heads, "layout": row.layout, "mask": row.mask}
    return axes | {"rope": row.rope, "shape": shape} | {name: name in row.features for name in COMPILED_FOR.get(op, ())}


def _can_be(kernel: Kernel, known: list[Cell], said: dict[str, Any]) -> bool:
    """Whether some row with these values in the place of its own would mean something, and the kernel take it."""
    return any(sensible(kernel, _with(row, said), _device(kernel)) for row in known)


def _with(row: Cell, said: dict[str, Any]) -> Cell:
    fields = {name: value for name, value in said.items() if name in Cell.__struct_fields__}
    kv = fields.pop("kv_dtype", kv_dtype(row))
    dtype = fields.get("dtype", row.dtype)
    mask = fields.get("mask", row.mask)
    features = set(row.features) | {name for name, value in said.items() if value is True}
    features -= {name for name, value in said.items() if value is False} | {"speculative_tree"}
    if mask.kind == "tree":
        features.add("speculative_tree")
    if "vacant" in features:
        features.discard("prefix_share")
    return replace(row, **fields, kv_dtype=dtype if kv == "same" else kv, features=tuple(sorted(features)))


def test_kernels_are_tried_on_cells_of_their_own() -> None:
    """Those that are drawn: of two or three axes rows are nearly all that there is, and the bounds may be the same."""
    cells = {}
    for op, kernel in FAST:
        found = _rows(op, kernel)
        known = {*found, *(cell for cell, _ in at_bounds(op, kernel, found, _device(kernel)))}
        cells[op, kernel.name] = {cell for cell, _ in tried(op, kernel.name)} - known
    for one, other in combinations(cells, 2):
        assert len(cells[one] & cells[other]) <= len(cells[one]) / 20, (one, other)


@pytest.mark.parametrize(
    ("name", "functions", "also"), sorted({(each.name, each.functions, each.also) for _, each in GPU}), ids=str
)
def test_what_is_launched_now_and_then_is_launched_and_is_not(
    name: str, functions: tuple[str, ...], also: tuple[str, ...]
) -> None:
    """By some op that has the kernel: few columns are no projection's to gate and up."""
    launched = [
        each
        for op, kernel in GPU
        if (kernel.name, kernel.functions) == (name, functions)
        for each in compiled(op, name)
    ]
    for function in (*functions, *also):
        found = {any(re.search(function, name) for name, *_ in each) for each in launched}
        assert found == ({True, False} if function in also else {True}), function


@pytest.mark.parametrize("kernel", [each for each in ATTENTION if each.also], ids=attrgetter("name"))
def test_scores_are_merged_and_not(kernel: Kernel) -> None:
    """Under every mask: a sink is one more key of the merge, or of the only part."""
    met: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for (cell, _), launched in zip(tried("attention", kernel.name), compiled("attention", kernel.name), strict=True):
        merged = any(re.search("merge", function) for function, *_ in launched)
        for feature in set(COMPILED_FOR["attention"]).intersection(cell.features):
            met[feature, cell.mask.kind].add(merged)
    assert {feature for feature, _ in met} == {*COMPILED_FOR["attention"]}
    assert not [each for each, merged in met.items() if merged != {True, False}]


def test_compilers_have_minutes_and_no_more_to_do() -> None:
    assert len(set().union(*(each for op, kernel in GPU for each in compiled(op, kernel.name)))) <= MOST_COMPILED
