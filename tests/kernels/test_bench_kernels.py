"""What bench_kernels.py times can be timed, suffices to judge every `worth` by, and is judged rightly."""

from dataclasses import replace
from itertools import product

import pytest

from bench_cases import PARTS, Case, Graph, Threshold
from bench_clock import REPLAYS, widest
from bench_kernels import lines, told
from bench_measure import Measured, Point, Timed
from kaudit.applicable import inapplicable
from kaudit.cell import Cell
from kaudit_kernels import graph
from kaudit_kernels.admission import admit
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel, decide
from kaudit_kernels.engine import ops
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import Requirement
from kaudit_probes.engines.reference import problem_of

EVERYTHING = [case for part in PARTS.values() for case in part]
CASES = [case for case in EVERYTHING if isinstance(case, Case)]
THRESHOLDS = [case for case in EVERYTHING if isinstance(case, Threshold)]
GRAPHS = [case for case in EVERYTHING if isinstance(case, Graph)]
WORTH = [
    pytest.param(op, kernel, needed, id=f"{op}-{kernel.name}-{needed}")
    for op, kernels in CATALOGUE.items()
    for kernel in kernels
    for needed in kernel.worth
]


def _problem(cell: str, vocabulary: int = Problem.vocabulary) -> Problem:
    """On an H200."""
    problem = replace(problem_of(Cell.parse(cell), 90, 132), vocabulary=vocabulary)
    assert inapplicable(Cell.parse(cell)) is None
    admit(problem)
    return problem


def _problems(case: Threshold) -> list[Problem]:
    return [_problem(*each) for each in product(case.cells, case.vocabularies)]


def _named(op: str, name: str) -> Kernel:
    (kernel,) = (each for each in CATALOGUE[op] if each.name == name)
    return kernel


def _runs(kernel: Kernel, problem: Problem) -> bool:
    return all(unmet.worth for unmet in kernel.unmet(problem))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op} {case.cell} {case.vocabulary}")
def test_a_case_and_its_variants_can_run(case: Case) -> None:
    problem = _problem(case.cell, case.vocabulary)
    assert case.op in ops(problem)
    for variant in case.variants:
        assert _runs(_named(case.op, variant.kernel), problem)


@pytest.mark.parametrize("case", THRESHOLDS, ids=lambda case: f"{case.op} {case.kernel} {case.axes}")
def test_the_kernel_of_a_threshold_and_one_after_it_can_run_in_each_cell(case: Threshold) -> None:
    kernels, kernel = CATALOGUE[case.op], _named(case.op, case.kernel)
    assert {needed.axis for needed in kernel.worth} >= set(case.axes)
    for problem in _problems(case):
        assert _runs(kernel, problem), problem
        after = {case.op: kernels[kernels.index(kernel) + 1 :]}
        assert decide(case.op, problem, after).chosen.name == "eager" or case.op == "attention"


@pytest.mark.parametrize(("op", "kernel", "needed"), WORTH)
def test_each_worth_is_timed_where_it_holds_and_where_it_alone_does_not(
    op: str, kernel: Kernel, needed: Requirement
) -> None:
    problems = [
        problem
        for case in THRESHOLDS
        if (case.op, case.kernel) == (op, kernel.name) and needed.axis in case.axes
        for problem in _problems(case)
    ]
    missed = [tuple(each for each in kernel.worth if each.check(problem)) for problem in problems]
    assert () in missed
    assert (needed,) in missed


@pytest.mark.parametrize("case", GRAPHS, ids=lambda case: case.cell)
def test_a_graph_can_be_captured(case: Graph) -> None:
    assert not graph.against(_problem(case.cell))


CASE = Case("attention", "a cell", "TB/s", bar=3.0)


def _measured(own: float, other: float, variant: float) -> Measured:
    figures = [Timed("warp_decode", own, 2e-6 / own), Timed("split_kv_decode", other, 2e-6 / other)]
    return Measured("warp_decode", figures, [Timed("warp_decode one head a block", variant, 2e-6 / variant)], [])


def test_a_case_says_where_order_variants_and_bars_are_missed() -> None:
    assert [line.strip() for line in lines(CASE, _measured(1e-6, 0.9e-6, 0.8e-6))][-3:] == [
        "ORDER: split_kv_decode is 11% faster than warp_decode, which is chosen",
        "VARIANT: warp_decode one head a block is 25% faster than it is by itself",
        "bar 3.0 TB/s: missed by 33.3%",
    ]
    quiet = [*lines(CASE, _measured(0.5e-6, 0.49e-6, 0.5e-6))]
    assert quiet[-1].strip() == "bar 3.0 TB/s: met by 33.3%"
    assert not [line for line in quiet if "ORDER" in line or "VARIANT" in line]


@pytest.mark.parametrize(
    ("seconds", "taken", "said"),
    [
        (1e-6, True, " 2.00 pays, taken "),
        (1e-6, False, " 2.00 pays, not taken, WRONG "),
        (4e-6, True, " 0.50 does not pay, taken, WRONG "),
        (4e-6, False, " 0.50 does not pay, not taken "),
        (2e-6, True, " 1.00 as fast, taken "),
        (2e-6, False, " 1.00 as fast, not taken "),
    ],
)
def test_a_threshold_says_on_which_side_a_cell_is_and_whether_that_is_the_right_one(
    seconds: float, taken: bool, said: str
) -> None:
    threshold = Threshold("sample", "fused_sample", ("vocabulary",), ("a cell", "another"))
    untimed = Point("another", "vocabulary=9", False, why="sm=80, needs 90")
    title, point, other, verdict = told(
        threshold, [Point("a cell", "vocabulary=8", taken, "eager", seconds, 2e-6), untimed]
    )
    bounds = title.removeprefix("sample  fused_sample is worth it if ").split("; ")
    assert bounds == list(map(str, _named("sample", "fused_sample").worth))
    assert said in point
    assert other.endswith("sm=80, needs 90")
    wrong = int("WRONG" in said)
    assert verdict.strip().lower() == f"bound: {wrong} of 1 cells that were timed are on its wrong side"
    assert ("BOUND" in verdict) == bool(wrong)


def _replays(gap: float) -> list[tuple[str, float, float]]:
    """Three kernels of 2 us each, 1 us and `gap` us apart, 100 us from replay to replay."""
    begin = [100.0 * i for i in range(REPLAYS)]
    places = (("a", 0.0), ("b", 3.0), ("c", 5.0 + gap))
    return [(name, at + offset, at + offset + 2.0) for at in begin for name, offset in places]


def test_the_widest_gap_of_a_graph_is_found_and_not_that_between_replays() -> None:
    found = widest(_replays(4.5)[::-1])
    assert (found.kernels, found.busy, found.widest, found.between) == (3, 6.0, 4.5, ("b", "c"))


def test_replays_of_which_kernels_were_lost_give_no_gap() -> None:
    with pytest.raises(RuntimeError, match="not all alike"):
        widest(_replays(4.5)[1:])
    with pytest.raises(RuntimeError, match="not all alike"):
        widest([])
