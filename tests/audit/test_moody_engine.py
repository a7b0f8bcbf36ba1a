"""The real probe with an engine whose choice hangs on what ran before, or on nothing: both are found and told apart."""

import sys
from pathlib import Path

import pytest
from test_sweep import Silent

from fakes.drive_sweep import cell
from kaudit.cell import Cell
from kaudit.child import probe_command
from kaudit.findings import findings
from kaudit.observation import Ran, Row
from kaudit.runs import Checks
from kaudit.sweep import SweepRequest, sweep
from kaudit.table import Table, read

pytest.importorskip("torch")
from engines_for_tests import moody

CELLS = [cell(1), cell(moody.STICKY)]


def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: list[Cell], checks: Checks) -> Table:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    command = probe_command(sys.executable, "engines_for_tests.moody:MoodyEngine", "cpu")
    path, table = sweep(
        cells, [], SweepRequest(command, "moody.yaml", "d1", tmp_path / "t.jsonl", checks=checks), Silent()
    )
    assert read(path) == table
    return table


def paths(row: Row) -> list[str | None]:
    """The path of the first run, then those of others that differ."""
    shown = [row.outcome, *(other.outcome for other in row.others)]
    assert all(isinstance(outcome, Ran) for outcome in shown)
    return [outcome.path for outcome in shown if isinstance(outcome, Ran)]


def test_a_sample_shows_what_hangs_on_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = swept(tmp_path, monkeypatch, CELLS, Checks(sample=2))
    sticky = table.rows[cell(moody.STICKY).id, "attention"]
    assert paths(sticky) == ["slow", "fast"]
    assert [(found.kind, found.cell, found.sentence) for found in findings(table)] == [
        ("order_dependent", sticky.cell, "alone in a fresh process, attention runs fast instead of slow"),
    ]


def test_a_repetition_shows_what_flaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = swept(tmp_path, monkeypatch, [*CELLS, cell(moody.FLAPPING)], Checks(repeat=3))
    flapping = table.rows[cell(moody.FLAPPING).id, "attention"]
    assert paths(flapping) == ["fast", "slow"]
    assert [(found.kind, found.cell, found.sentence) for found in findings(table)] == [
        ("flapping", flapping.cell, "in another run, attention left fast for slow without a word"),
    ]


def test_isolated_cells_have_no_company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = swept(tmp_path, monkeypatch, CELLS, Checks(isolated=True))
    assert [paths(row) for row in table.rows.values()] == [["fast"]] * len(CELLS)
    assert table.header.isolated
