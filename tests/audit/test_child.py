"""What a probe process cannot do to the sweep: fill its memory, its log or the disk, or hold it up for ever."""

from pathlib import Path

import pytest
from test_sweep import Silent, request

from fakes import fake_probe as fake
from fakes.drive_sweep import cell
from kaudit import child, exchange
from kaudit.errors import ProbeError
from kaudit.observation import WHOLE_CELL, Crashed, Outcome, Ran
from kaudit.sweep import sweep


def outcomes(tmp_path: Path, fate: int) -> list[Outcome]:
    """Of a cell with that fate, and of the one after it."""
    _, table = sweep([cell(fate), cell(1)], [], request(tmp_path / "t.jsonl"), Silent())
    return [table.rows[cell(fate).id, WHOLE_CELL].outcome, table.rows[cell(1).id, "attention"].outcome]


def test_a_message_without_end_is_the_open_cells_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "MOST_LINE", 1 << 20)
    bad, good = outcomes(tmp_path, fake.ENDS_NO_LINE)
    assert bad == Crashed("wrote to the probe's own pipe")
    assert isinstance(good, Ran)


def test_a_cell_that_fills_the_disk_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "MOST_PRINTED", 1 << 19)
    bad, good = outcomes(tmp_path, fake.FLOODS)
    assert bad == Crashed("printed more than 0 MiB")
    assert isinstance(good, Ran)


def test_a_probe_that_does_not_stop_talking_is_a_bug(tmp_path: Path) -> None:
    told = Silent()
    with pytest.raises(ProbeError, match="sent 300 messages and no answer to a batch of 2 cells"):
        sweep([cell(fake.CHATTERS), cell(1)], [], request(tmp_path / "t.jsonl"), told)
    assert len(told.notes) <= 3 * exchange.MOST_MESSAGES
