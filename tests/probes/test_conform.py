"""An adapter's mistake is one line that says where, and is no outcome of the engine's."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")
from engines_for_tests import wrong
from engines_for_tests.faulty import FALLS_BACK_ALOUD, FaultyEngine
from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit_probes.capture import Capture
from kaudit_probes.engines.conform import check_engine
from kaudit_probes.observe import Observer

TESTS = Path(__file__).parents[1]
CELL = Cell.parse("decode/bf16/kv-bf16/h4x2x64/contiguous/causal/none/plain/b1q1k8")

Mistakes = Mapping[str, tuple[type, str]]


def test_an_engine_that_keeps_to_the_protocol_passes() -> None:
    check_engine(FaultyEngine("cpu"))


@pytest.mark.parametrize("mistake", wrong.AT_START)
def test_a_mistake_is_told_before_a_cell_runs(mistake: str) -> None:
    kind, said = wrong.AT_START[mistake]
    with pytest.raises(UserError) as error:
        check_engine(kind("cpu"))
    (line,) = error.value.faults
    assert line.startswith(f"{kind.__module__}:Wrong: {said}")
    assert line.endswith("; mend the adapter")


@pytest.mark.parametrize("mistake", wrong.OF_A_CELL)
def test_a_mistake_that_a_cell_brings_to_light_is_no_outcome_of_it(mistake: str) -> None:
    kind, said = wrong.OF_A_CELL[mistake]
    engine = kind("cpu")
    check_engine(engine)
    with pytest.raises(UserError) as error:
        Observer(engine, Capture("cpu"), lambda _: None).observe([CELL])
    (line,) = error.value.faults
    assert said in line
    assert CELL.id in line


def swept(engine: str, folder: Path) -> subprocess.CompletedProcess[str]:
    shapes = ", ".join(f"b{batch}q1k8" for batch in (1, FALLS_BACK_ALOUD))
    (folder / "m.yaml").write_text(f"axes: {{phase: [decode], shape: [{shapes}]}}\n")
    command = [sys.executable, "-m", "kaudit", "sweep", "m.yaml", "--device", "cpu", "--out", "t.jsonl"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run(
        [*command, "--engine", f"engines_for_tests.wrong:{engine}"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("ListsNothing", "paths() gives {}, not the paths of one op at least; mend the adapter (docs/engines.md)"),
        ("TurnsDownNoPath", "announced() turns down 'faster' of attention, of which paths() lists fast, slow, for"),
    ],
)
def test_a_sweep_ends_at_the_mistake_with_one_line(engine: str, said: str, tmp_path: Path) -> None:
    ended = swept(engine, tmp_path)
    assert ended.returncode == 2
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [ended.stderr.splitlines()[-1]]
    assert errors[0].startswith(f"error: engines_for_tests.wrong:{engine}: {said}")
    assert "died" not in ended.stderr
