"""The real probe with an engine that does everything wrong, one fault a cell: each has its true outcome, and each other
cell of the sweep is right."""

import sys
from pathlib import Path

import pytest
from test_sweep import Silent

from fakes.drive_sweep import cell
from kaudit.child import probe_command
from kaudit.observation import WHOLE_CELL, Crashed, Hung, Kernel, Outcome, Ran, Refused, Rejection, Said, Skipped, Unmet
from kaudit.sweep import SweepRequest, sweep
from kaudit.table import Table

pytest.importorskip("torch")
from engines_for_tests import faulty

LIMIT = 5.0
RIGHT = (1, 2, 3, 4)


def shown(kernel: str) -> tuple[Kernel, ...]:
    return (Kernel(kernel, "gemm", "matmul", 1),)


ASKED = Rejection("fast", "asked", (Unmet("batch", "110", "at most 108"),))
TOLD = Rejection("fast", "announced", (Said("falling back to slow: the batch is odd"),))

WHOLE: dict[int, Outcome] = {
    faulty.SEGFAULTS: Crashed("SIGSEGV"),
    faulty.SEGFAULTS_LATER: Crashed("SIGSEGV"),
    faulty.ABORTS: Crashed("SIGABRT"),
    faulty.EXITS: Crashed("exit 3"),
    faulty.SLEEPS: Hung(LIMIT),
    faulty.SPINS: Hung(LIMIT),
    faulty.RAISES: Crashed("RuntimeError: shape mismatch at 0x…"),
    faulty.RAISES_IN_PREPARE: Crashed("ValueError: no such inputs"),
    faulty.REFUSES: Refused("batch=107 has no kernel"),
    faulty.UNSUPPORTED: Refused("batch=112 is not served"),
    faulty.INEXPRESSIBLE: Skipped("this adapter knows no batch of 113"),
}
SEEN: dict[int, Ran] = {
    faulty.PRINTS: Ran("fast", shown("aten::mm"), "fast"),
    faulty.LIES: Ran(
        "slow", shown("aten::bmm"), "fast", (Rejection("fast", "asked", (Unmet("batch", "109", "at most 108"),)),)
    ),
    faulty.FALLS_BACK_SILENTLY: Ran("slow", shown("aten::bmm"), "slow", (ASKED,)),
    faulty.FALLS_BACK_ALOUD: Ran("slow", shown("aten::bmm"), "slow", (TOLD,)),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
        command = probe_command(sys.executable, "engines_for_tests.faulty:FaultyEngine", "cpu")
        out = tmp_path_factory.mktemp("faulty") / "t.jsonl"
        # A right cell between any two that are not: what a fault spills over would show on its neighbours.
        fates = [fate for pair in zip([*WHOLE, *SEEN], RIGHT * 4, strict=False) for fate in pair]
        cells = [cell(fate, 64 + number) for number, fate in enumerate(fates)]
        return sweep(cells, [], SweepRequest(command, "faulty.yaml", "d1", out, cell_limit=LIMIT), Silent())[1]


def outcomes(table: Table, fate: int) -> list[tuple[str, Outcome]]:
    return [(row.op, row.outcome) for row in table.rows.values() if f"/b{fate}q" in row.cell]


@pytest.mark.parametrize("fate", WHOLE)
def test_a_bad_cell_has_its_true_outcome(table: Table, fate: int) -> None:
    assert outcomes(table, fate) == [(WHOLE_CELL, WHOLE[fate])]


@pytest.mark.parametrize("fate", SEEN)
def test_what_a_chatty_or_lying_cell_ran_is_seen(table: Table, fate: int) -> None:
    assert outcomes(table, fate) == [("attention", SEEN[fate])]


@pytest.mark.parametrize("fate", RIGHT)
def test_each_other_cell_is_right(table: Table, fate: int) -> None:
    found = outcomes(table, fate)
    assert len(found) >= 3
    assert set(found) == {("attention", Ran("fast", shown("aten::mm"), "fast"))}


def test_a_lie_is_a_contradiction_and_a_fallback_is_not(table: Table) -> None:
    told = {fate: ran for fate in SEEN for _, ran in outcomes(table, fate) if isinstance(ran, Ran)}
    assert [fate for fate, ran in told.items() if ran.contradiction] == [faulty.LIES]
    assert [fate for fate, ran in told.items() if ran.explains("fast")] == [faulty.FALLS_BACK_ALOUD]
