"""Planted faults are caught by name, and what is right is not accused: on a CPU, and on a GPU through its own kernels.

pytest -m gpu tests/probes/test_numerics_planted.py
"""

from itertools import chain

import pytest
from numerics_for_tests import checked
from planted_faults import FAULTS, planted

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit_kernels.admission import Inadmissible
from kaudit_probes.engines.reference import ReferenceEngine
from kaudit_probes.engines.sdpa import SdpaEngine

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught_by_name(monkeypatch: pytest.MonkeyPatch, name: str, device: str) -> None:
    fault = FAULTS[name]
    assert checked(fault.cell, device)["attention"].verdict == "ok"
    planted(monkeypatch, fault)
    found = checked(fault.cell, device)["attention"]
    assert found.verdict == fault.verdict, found
    assert found.numbers.hint.removeprefix("as if ").startswith(fault.named), found
    assert found.ignored == fault.ignored


def accused(cells: list[Cell], device: str) -> tuple[int, dict[str, dict[str, str]]]:
    """How many cells were checked, and of those with a verdict that is not ok, the verdict and hint by op."""
    engine, count, found = ReferenceEngine(device), 0, {}
    for cell in cells:
        if engine.supports(cell) is not None:
            continue
        try:
            verdicts = checked(cell.id, device)
        except Inadmissible:
            continue
        count += 1
        bad = {op: f"{one.verdict}: {one.numbers.hint}" for op, one in verdicts.items() if one.verdict != "ok"}
        if bad:
            found[cell.id] = bad
    return count, found


def test_no_clean_cell_of_the_edges_is_accused() -> None:
    cells = [cell for cell in expand(load("edges")).cells if cell.shape.kv_len < 2000]
    count, found = accused(cells[::6], "cpu")
    assert not found
    assert count >= 25


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(6))
def test_none_of_300_clean_cells_is_accused_on_a_gpu(part: int) -> None:
    """A sixth each, for workers beside one another: most of the time goes into compiling kernels that cells share."""
    cells = list(chain.from_iterable(expand(load(matrix)).cells for matrix in ("edges", "graphs", "smoke")))
    count, found = accused(cells[part::6], "cuda")
    assert not found
    assert count >= 50


@pytest.mark.parametrize("device", DEVICES)
def test_no_edge_that_torch_s_attention_takes_is_accused(device: str) -> None:
    engine = SdpaEngine(device)
    cells = [cell for cell in expand(load("edges")).cells if engine.supports(cell) is None]
    assert {feature for cell in cells for feature in cell.features} == {"transposed", "sliced", "broadcast"}
    found = {cell.id: checked(cell.id, device, SdpaEngine) for cell in cells}
    assert {one.verdict for ops in found.values() for one in ops.values()} == {"ok"}


def test_what_the_edges_expect_to_be_refused_is_refused_in_words() -> None:
    refused = {}
    for cell in expand(load("edges")).cells:
        if cell.heads.q % cell.heads.kv or "bad_last_page" in cell.features:
            with pytest.raises(Inadmissible) as caught:
                ReferenceEngine("cpu").prepare(cell)
            refused[cell.id] = str(caught.value)
    assert len(refused) == 10
    assert all("needs a divisor of q_heads=" in why or "needs at most page_size=" in why for why in refused.values())
