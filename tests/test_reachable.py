"""Every kernel of the reference engine serves some cell of some shipped matrix, on some device, and some of each KV
layout that it is written for. Nothing is launched.

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
from kaudit_kernels.dispatch import Kernel, NoKernel, decide
from kaudit_kernels.engine import ops
from kaudit_kernels.graph import launched
from kaudit_probes.devices import SM_COUNT
from kaudit_probes.engines import ENGINES
from kaudit_probes.engines.reference import ReferenceEngine, problem_of

DEVICES = {0: 0, **{sm: SM_COUNT[sm] for sm in (80, 90, 120)}}
"""A CPU, and the generations that a kernel is written for."""

MATRICES = [
    stem
    for stem in sorted(path.stem for path in Path(kaudit_matrices.__file__).parent.glob("*.yaml"))
    if not any(name.replace("-", "_").startswith(stem) for name in ENGINES)
]
"""Those that are swept with the reference engine: others bear the name of theirs."""


@cache
def served() -> frozenset[tuple[str, str, str]]:
    """(op, kernel, KV layout) of all that is chosen for some cell that the engine does not refuse."""
    engine = ReferenceEngine("cpu")
    cells = {cell for name in MATRICES for cell in expand(load(name), 10_000).cells if engine.supports(cell) is None}
    found: set[tuple[str, str, str]] = set()
    for problem in (launched(problem_of(cell, *device)) for cell in cells for device in DEVICES.items()):
        with suppress(Inadmissible, NoKernel):
            admit(problem)
            found |= {(op, decide(op, problem, CATALOGUE).chosen.name, problem.kv_layout) for op in ops(problem)}
    return frozenset(found)


def _layouts(kernel: Kernel) -> list[str]:
    """Those that the kernel names. With one that names none, whatever the op does not look at, any will do."""
    return [str(name) for needed in kernel.requires if needed.axis == "kv_layout" for name in needed.bounds] or [""]


@pytest.mark.parametrize(
    ("op", "kernel", "layout"),
    [(op, each.name, layout) for op, kernels in CATALOGUE.items() for each in kernels for layout in _layouts(each)],
)
def test_a_cell_of_a_shipped_matrix_is_served_by(op: str, kernel: str, layout: str) -> None:
    """In each layout: what reads pages is other code than what reads a batch whose requests lie side by side."""
    found = {seen for of, name, seen in served() if (of, name) == (op, kernel)}
    assert (layout in found) if layout else found, (
        f"no cell of {', '.join(MATRICES)} is served by {op}: {kernel} {layout}"
    )


@pytest.mark.parametrize("kernel", ["cascade_decode", "warp_decode", "split_kv_decode"])
def test_a_batch_of_the_graphs_that_is_filled_up_is_served_by(kernel: str) -> None:
    problems = [launched(problem_of(cell, 90, SM_COUNT[90])) for cell in expand(load("graphs"), 10_000).cells]
    assert kernel in {decide("attention", each, CATALOGUE).chosen.name for each in problems if each.padding}


def test_the_release_matrix_stays_as_small_as_a_gpu_needs_it() -> None:
    assert len(expand(load("release"), 10_000).cells) < 400
