"""What test_gpu_kernels.py launches, decided for an H200 that need not be there."""

from typing import Any

import pytest
from kernel_problems import BASE, but, title
from test_gpu_kernels import CELLS, SHOWN

from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.engine import ops


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("chosen", "changes"), CELLS, ids=lambda each: each if isinstance(each, str) else title(each))
def test_the_cells_that_are_launched_on_a_gpu_take_the_path_that_they_are_there_for(
    chosen: str, changes: dict[str, Any], dtype: str
) -> None:
    problem = but(BASE, **changes, dtype=dtype, sm=90, sm_count=132)
    assert decide("attention", problem, CATALOGUE).chosen.name == chosen


def test_the_profiler_is_shown_every_kernel_of_a_hopper_gpu() -> None:
    problems = [but(BASE, **changes, sm=90, sm_count=132) for changes in SHOWN]
    shown = {(op, decide(op, problem, CATALOGUE).chosen.name) for problem in problems for op in ops(problem)}
    assert shown >= {
        (op, kernel.name)
        for op, kernels in CATALOGUE.items()
        for kernel in kernels
        if kernel.functions and not kernel.never(90)
    }
