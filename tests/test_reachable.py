"""Every kernel of the reference engine serves some cell of some shipped matrix, on some device. Nothing is launched.

A cell's problem is what would be launched for it, with what fills up a CUDA graph.
"""

from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

import kaudit_matrices
from kaudit.matrix import expand, load
from kaudit_kernels.admission import Inadmissible, admit
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import NoKernel, decide
from kaudit_kernels.engine import ops
from kaudit_kernels.graph import launched
from kaudit_probes.devices import SM_COUNT
from kaudit_probes.engines.reference import ReferenceEngine, problem_of

DEVICES = {0: 0, **{sm: SM_COUNT[sm] for sm in (80, 90, 120)}}
"""A CPU, and the generations that a kernel is written for."""

MATRICES = sorted(path.stem for path in Path(kaudit_matrices.__file__).parent.glob("*.yaml"))


@cache
def served() -> frozenset[tuple[str, str]]:
    """(op, kernel) of all that is chosen for some cell that the engine does not refuse."""
    engine = ReferenceEngine("cpu")
    cells = {cell for name in MATRICES for cell in expand(load(name), 10_000).cells if engine.supports(cell) is None}
    found: set[tuple[str, str]] = set()
    for problem in (launched(problem_of(cell, *device)) for cell in cells for device in DEVICES.items()):
        with suppress(Inadmissible, NoKernel):
            admit(problem)
            found |= {(op, decide(op, problem, CATALOGUE).chosen.name) for op in ops(problem)}
    return frozenset(found)


@pytest.mark.parametrize(("op", "kernel"), [(op, each.name) for op, kernels in CATALOGUE.items() for each in kernels])
def test_a_cell_of_a_shipped_matrix_is_served_by(op: str, kernel: str) -> None:
    assert (op, kernel) in served(), f"no cell of {', '.join(MATRICES)} is served by {op}: {kernel}"


@pytest.mark.parametrize("kernel", ["cascade_decode", "warp_decode", "split_kv_decode"])
def test_a_batch_of_the_graphs_that_is_filled_up_is_served_by(kernel: str) -> None:
    problems = [launched(problem_of(cell, 90, SM_COUNT[90])) for cell in expand(load("graphs"), 10_000).cells]
    assert kernel in {decide("attention", each, CATALOGUE).chosen.name for each in problems if each.padding}


def test_the_release_matrix_stays_as_small_as_a_gpu_needs_it() -> None:
    assert len(expand(load("release"), 10_000).cells) < 400
