"""Cells that ask for a shared prefix have one: a page at least, and a request to share it with."""

from itertools import product

import pytest
from msgspec.structs import replace

from kaudit.applicable import LAWS, inapplicable
from kaudit.cell import Cell, Layout, Shape
from kaudit.matrix import expand, load
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.graph import launched
from kaudit_kernels.problem import Problem
from kaudit_probes.engines.reference import problem_of

DECODE = "decode/bf16/kv-bf16/h8x2x64/paged16/causal/neox/{}/{}"
MIXED = "mixed/bf16/kv-bf16/h8x2x64/paged16/causal/neox/prefix_share/b3q31k64"
FEW = "prefix_share shares whole pages of half the earlier tokens, needs 32 in each request, has {}"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (DECODE.format("prefix_share", "b2q1k33"), None),
        (DECODE.format("prefix_share", "b2q1k32"), FEW.format(31)),
        (DECODE.format("prefix_share", "b2q2k33"), FEW.format(31)),
        (DECODE.format("prefix_share", "b2q1k65skew"), FEW.format(31)),
        (DECODE.format("prefix_share", "b2q1k66skew"), None),
        (DECODE.format("idle+prefix_share", "b2q1k33"), None),
        (DECODE.format("prefix_share+vacant", "b2q1k8192"), FEW.format(0)),
        (DECODE.format("prefix_share", "b1q1k8192"), "prefix_share needs a request to share with, has batch=1"),
        (DECODE.format("plain", "b1q1k1"), None),
        (MIXED, None),
        (MIXED.replace("k64", "k62"), FEW.format(31)),
    ],
)
def test_a_prefix_is_shared_by_pages_and_by_two(cell: str, why: str | None) -> None:
    assert inapplicable(Cell.parse(cell)) == why


def test_the_law_is_about_what_an_engine_would_find_shared() -> None:
    """Whatever else a cell breaks is left aside."""
    phases, pages, features = ("chunked_prefill", "decode", "mixed"), (1, 8, 16), ("idle", "vacant", None)
    shapes = product((2, 3, 5), (1, 2, 17), (1, 2, 3, 17, 32, 33, 34, 49, 64, 100), (False, True))
    shares, law = set(), next(each for each in LAWS if each.check.__name__ == "_shared_prefix_fills_a_page")
    for (batch, q_len, kv_len, skew), phase, page, feature in product(shapes, phases, pages, features):
        named = ("prefix_share",) if feature is None else tuple(sorted(("prefix_share", feature)))
        cell = Cell.parse(DECODE.format("+".join(named), "b2q1k33"))
        cell = replace(cell, phase=phase, layout=Layout("paged", page), shape=Shape(batch, q_len, kv_len, skew))
        shared = problem_of(cell, 90, 132).shared_prefix
        assert (law.broken_by(cell) is None) == (shared > 0), cell.id
        shares.add(shared // page)
    assert {0, 1, 2} < shares


@pytest.mark.parametrize("name", ["release", "edges", "graphs"])
def test_every_cell_of_a_shipped_matrix_that_asks_for_a_prefix_shares_one(name: str) -> None:
    sharing = [problem_of(cell, 90, 132) for cell in expand(load(name)).cells if "prefix_share" in cell.features]
    assert len(sharing) >= 20
    assert all(problem.shared_prefix and problem.batch > 1 for problem in sharing)


def test_the_edges_have_prefixes_at_and_beside_the_bounds_of_what_is_shared() -> None:
    """Two pages of earlier tokens share one, four share two; and a token less than four."""
    cells = [cell for cell in expand(load("edges")).cells if "prefix_share" in cell.features and not cell.shape.skew]
    earlier = {(cell.layout.page, cell.shape.kv_len - cell.shape.q_len) for cell in cells}
    for page in (16, 64):
        assert {(page, 2 * page), (page, 4 * page - 1), (page, 4 * page)} <= earlier


CASCADE: Kernel = next(kernel for kernel in CATALOGUE["attention"] if kernel.name == "cascade_decode")


def _launched(name: str) -> list[Problem]:
    """What a shipped matrix launches on an H200."""
    return [launched(problem_of(cell, 90, 132)) for cell in expand(load(name)).cells]


@pytest.mark.parametrize("name", ["release", "edges", "graphs"])
def test_a_prefix_of_a_shipped_matrix_is_served_by_a_cascade(name: str) -> None:
    assert any(not CASCADE.unmet(problem) for problem in _launched(name))


@pytest.mark.parametrize("name", ["edges", "graphs"])
def test_each_worth_of_the_cascade_is_in_some_cell_all_that_is_missing(name: str) -> None:
    alone = {unmet[0].axis for problem in _launched(name) if len(unmet := CASCADE.unmet(problem)) == 1}
    assert {needed.axis for needed in CASCADE.worth} <= alone


@pytest.mark.parametrize(
    ("cell", "tokens", "mib"),
    [
        ("decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/prefix_share/b8q1k8193", 4096, 16),
        ("decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/prefix_share/b8q1k8192", 4080, 15),
        ("decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k8193", 0, 0),
        ("decode/bf16/kv-fp8_e4m3/h32x8x128/paged16/causal/neox/prefix_share/b8q1k8193", 4096, 8),
        ("decode/fp32/kv-fp32/h8x1x128/paged16/causal/neox/prefix_share/b8q1k8193", 4096, 4),
        ("decode/bf16/kv-bf16/h16x16x192x128/paged16/causal/neox/prefix_share/b8q1k8193", 4096, 40),
    ],
)
def test_what_is_shared_is_counted_in_tokens_and_in_bytes_of_k_and_v(cell: str, tokens: int, mib: int) -> None:
    problem = problem_of(Cell.parse(cell), 90, 132)
    assert (problem.shared_prefix, problem.shared_mib) == (tokens, mib)
