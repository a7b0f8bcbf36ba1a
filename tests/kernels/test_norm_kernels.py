"""The fused norms against the eager ones: interpreted on a CPU, compiled on a GPU (see conftest.py)."""

import pytest
import torch

from kaudit_kernels import eager
from kaudit_kernels.triton import launch
from kaudit_kernels.triton.launch import NormTile, norm_tile

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned_outputs")


@pytest.mark.parametrize("tile", [None, NormTile(rows=4, block=4096, warps=8)], ids=["own", "rows together"])
@pytest.mark.parametrize("hidden", [1, 48, 1024, 2600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
def test_norms(tile: NormTile | None, hidden: int, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    x, residual, weight = (torch.randn(7, hidden, device=device).to(dtype) for _ in range(3))
    unit = torch.finfo(dtype).eps
    found, wanted = launch.rms_norm(x, weight[0], tile), eager.rms_norm(x, weight[0])
    torch.testing.assert_close(found, wanted, rtol=2 * unit, atol=1e-6)
    found, wanted = launch.add_rms_norm(x, residual, weight[0], tile), eager.add_rms_norm(x, residual, weight[0])
    assert torch.equal(found[1], wanted[1])
    torch.testing.assert_close(found[0], wanted[0], rtol=2 * unit, atol=1e-6)


def test_narrow_rows_share_a_program_where_there_are_many() -> None:
    assert norm_tile(tokens=8192, hidden=4096) == NormTile(rows=1, block=4096, warps=8)
    assert norm_tile(tokens=8192, hidden=1000) == NormTile(rows=4, block=1024, warps=8)
    assert norm_tile(tokens=8, hidden=1024) == NormTile(rows=1, block=1024, warps=2)
    assert norm_tile(tokens=1, hidden=16384) == NormTile(rows=1, block=16384, warps=16)
