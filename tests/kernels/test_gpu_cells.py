"""What test_gpu_kernels.py launches, decided for an H200 that need not be there."""

from typing import Any

import pytest
from kernel_problems import BASE, but, title
from test_gpu_kernels import CELLS

from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("chosen", "changes"), CELLS, ids=lambda each: each if isinstance(each, str) else title(each))
def test_the_cells_that_are_launched_on_a_gpu_take_the_path_that_they_are_there_for(
    chosen: str, changes: dict[str, Any], dtype: str
) -> None:
    problem = but(BASE, **changes, dtype=dtype, sm=90, sm_count=132)
    assert decide("attention", problem, CATALOGUE).chosen.name == chosen
