"""The conductor, with a probe that runs nothing: what a cell comes to when its process does not behave."""

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fakes import fake_probe as fake
from fakes.drive_sweep import FAKE_PROBE, cell
from kaudit import exchange, host
from kaudit.child import probe_command
from kaudit.errors import ProbeError, UserError
from kaudit.observation import OUT_OF_MEMORY, WHOLE_CELL, Crashed, Hung, Outcome, Ran, Skipped, Unseen
from kaudit.sweep import SweepRequest, sweep, table_name
from kaudit.table import Device, Stamp, Table, read

DESCRIPTORS = Path("/proc/self/fd")


class Silent:
    """Keeps what it is told. `interrupt_at`: the cell at which the user loses patience."""

    def __init__(self, interrupt_at: str = "") -> None:
        self.notes: list[str] = []
        self.counts: list[int] = []
        self.interrupt_at = interrupt_at

    def begin(self, done: int, total: int) -> None:
        self.counts = [done, total]

    def opened(self, cell: str) -> None:
        if cell == self.interrupt_at:
            raise KeyboardInterrupt

    def finished(self, done: int) -> None:
        self.counts.append(done)

    def note(self, text: str) -> None:
        self.notes.append(text)


def request(out: Path | None, *, resume: bool = False, cell_limit: float = 60.0) -> SweepRequest:
    return SweepRequest(FAKE_PROBE, "smoke.yaml", "d1", out, resume, cell_limit)


Sweep = Callable[..., Table]


@pytest.fixture
def swept(tmp_path: Path) -> Sweep:
    def run(*batches: int, cell_limit: float = 60.0) -> Table:
        return sweep(
            [cell(batch) for batch in batches], [], request(tmp_path / "t.jsonl", cell_limit=cell_limit), Silent()
        )[1]

    return run


def outcome(table: Table, batch: int) -> Outcome:
    """What stands for the whole cell, or its attention."""
    name = cell(batch).id
    return (table.rows.get((name, WHOLE_CELL)) or table.rows[name, "attention"]).outcome


def test_a_sweep_writes_the_table_the_measures_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "v1.jsonl"
    progress = Silent()
    path, table = sweep([cell(2), cell(1)], [(cell(3), "no such thing")], request(out), progress)
    assert path == out
    assert read(out) == table
    assert [key[1] for key in table.rows] == ["attention", "o_proj", "attention", "o_proj", WHOLE_CELL]
    assert outcome(table, 3) == Skipped("no such thing")
    assert table.header.stamp.matrix_digest == "d1"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v1.jsonl", "v1.measure.parquet"]
    measures = pd.read_parquet(tmp_path / "v1.measure.parquet")
    assert list(measures.columns) == ["cell", "op", "device_us"]
    assert list(zip(measures["cell"], measures["op"], strict=True)) == list(table.rows)[:4]
    assert progress.counts == [0, 2, 2]
    assert progress.notes == ["waking up"]


def test_a_sweep_of_nothing_but_skipped_cells_has_no_measures(tmp_path: Path) -> None:
    _, table = sweep([], [(cell(1), "because")], request(tmp_path / "v1.jsonl"), Silent())
    assert outcome(table, 1) == Skipped("because")
    assert pd.read_parquet(tmp_path / "v1.measure.parquet").empty


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (fake.SEGFAULTS, Crashed("SIGSEGV")),
        (fake.EXITS, Crashed("exit 3")),
        (fake.LEAVES_A_CHILD, Crashed("exit 4")),
        (fake.POISONS, Crashed("cudaErrorIllegalAddress")),
        (fake.GARBLES, Crashed("wrote to the probe's own pipe")),
        (fake.UNSEEN, Unseen("2 launches have no kernel")),
    ],
)
def test_a_bad_cell_costs_itself(swept: Sweep, batch: int, expected: Outcome) -> None:
    table = swept(1, batch, 2)
    assert outcome(table, batch) == expected
    assert isinstance(outcome(table, 1), Ran)
    assert isinstance(outcome(table, 2), Ran)


@pytest.mark.parametrize("batch", [fake.DIES_IN_COMPANY, fake.UNSEEN_IN_COMPANY, fake.STARVES_IN_COMPANY, fake.PRINTS])
def test_what_a_cell_does_alone_is_what_counts(swept: Sweep, batch: int) -> None:
    table = swept(1, batch, 2)
    assert all(isinstance(row.outcome, Ran) for row in table.rows.values())
    assert len(table.rows) == 6


def test_a_cell_that_has_no_memory_alone_either_crashed(swept: Sweep) -> None:
    assert outcome(swept(1, fake.STARVES, 2), fake.STARVES) == OUT_OF_MEMORY


def test_a_hung_cell_gets_its_limit_once(swept: Sweep) -> None:
    table = swept(1, fake.HANGS, 2, cell_limit=1.0)
    assert outcome(table, fake.HANGS) == Hung(1.0)
    assert isinstance(outcome(table, 2), Ran)


def test_a_death_with_no_cell_open_costs_no_other_cell(swept: Sweep) -> None:
    table = swept(fake.KILLS_CAPTURE, 1, 2)
    assert outcome(table, fake.KILLS_CAPTURE) == Unseen("the probe died with no cell open: SIGSEGV")
    assert isinstance(outcome(table, 1), Ran)


def test_a_capture_that_does_not_end_costs_no_other_cell(swept: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CAPTURE_LIMIT", 0.1)
    table = swept(1, fake.STALLS_CAPTURE, 2, cell_limit=1.0)
    assert outcome(table, fake.STALLS_CAPTURE) == Unseen("the capture did not end within 1.1 s")
    assert isinstance(outcome(table, 1), Ran)


def test_neighbours_that_each_kill_the_capture_cost_no_other_cell(tmp_path: Path) -> None:
    killers, others = [[cell(fate, kv_len) for kv_len in range(1, 6)] for fate in (fake.KILLS_CAPTURE, 1)]
    _, table = sweep([others[0], *killers, *others[1:]], [], request(tmp_path / "t.jsonl"), Silent())
    assert {row.cell for row in table.rows.values() if isinstance(row.outcome, Unseen)} == {one.id for one in killers}
    assert {row.cell for row in table.rows.values() if isinstance(row.outcome, Ran)} == {one.id for one in others}


def test_a_probe_that_dies_without_any_cell_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_EMPTY", "dies")
    cells = [cell(fake.KILLS_CAPTURE, kv_len) for kv_len in (1, 2, 3, 4)]
    with pytest.raises(UserError, match=r"died 7 times in a row with no cell open \(SIGSEGV\)"):
        sweep(cells, [], request(tmp_path / "t.jsonl"), Silent())


def test_a_probe_that_hangs_without_any_cell_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_EMPTY", "hangs")
    cells = [cell(fake.UNSEEN, kv_len) for kv_len in (1, 2, 3, 4)]
    with pytest.raises(UserError, match=r"did not answer within 1 s without any cell; run kaudit doctor.*--resume"):
        sweep(cells, [], request(tmp_path / "t.jsonl", cell_limit=1.0), Silent())


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("dies", r"died before it took cells \(exit 1\): ImportError: no such engine"),
        ("hangs", r"took no cells for 0\.3 s"),
        ("fails", "--device cuda: there is none"),
    ],
)
def test_a_probe_that_cannot_start_is_the_users_to_mend(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_START", start)
    if start == "hangs":
        monkeypatch.setattr(host, "START_LIMIT", 0.3)
    with pytest.raises(UserError, match=message):
        swept(1)
    assert not list(tmp_path.iterdir())


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = probe_command(str(tmp_path / "python"), "reference", "cpu")
    with pytest.raises(UserError, match=r"--python: .*No such file"):
        sweep([cell(1)], [], SweepRequest(command, "m", "d", tmp_path / "t.jsonl"), Silent())


@pytest.mark.parametrize("batch", [fake.FORGETS, fake.INVENTS, fake.TWICE])
def test_a_probe_that_breaks_its_contract_is_a_bug(swept: Sweep, batch: int) -> None:
    with pytest.raises(ProbeError):
        swept(batch, 1)


def test_an_engine_that_changes_during_the_sweep_is_refused(
    swept: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("FAKE_CHANGES", "yes")
    with pytest.raises(UserError, match=r"changed during the sweep: stamp\.revision was 1, is now 2"):
        swept(1, fake.SEGFAULTS)


def test_to_resume_nothing_is_said_and_sweeps_all(tmp_path: Path) -> None:
    out, progress = tmp_path / "t.jsonl", Silent()
    sweep([cell(1, 1)], [], request(out, resume=True), progress)
    assert f"{out}.partial: nothing is kept there to resume; sweeping all cells" in progress.notes
    assert out.exists()


def test_an_interrupted_sweep_says_how_to_go_on_and_goes_on(tmp_path: Path) -> None:
    cells = [cell(1, kv_len) for kv_len in range(1, 80)]
    out = tmp_path / "t.jsonl"
    progress = Silent(interrupt_at=cells[40].id)
    with pytest.raises(KeyboardInterrupt):
        sweep(cells, [], request(out), progress)
    partial = tmp_path / "t.jsonl.partial"
    assert progress.notes[-1] == f"interrupted: 26 of 79 cells are kept in {partial}; go on with --resume"
    with pytest.raises(UserError, match="an unfinished sweep of 26 cells; go on with --resume, or delete it"):
        sweep(cells, [], request(out), Silent())
    with pytest.raises(UserError, match="which is not in this sweep"):
        sweep(cells[1:], [], request(out, resume=True), Silent())
    progress = Silent()
    sweep(cells, [], request(out, resume=True), progress)
    assert (progress.counts[0], progress.counts[-1]) == (26, 79)
    assert not partial.exists()
    assert len(pd.read_parquet(tmp_path / "t.measure.parquet")) == 2 * len(cells)
    assert "nothing is kept there" not in " ".join(progress.notes)
    whole, _ = sweep(cells, [], request(tmp_path / "whole.jsonl"), Silent())
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("out", ["", "missing/t.jsonl"])
def test_an_out_that_cannot_be_is_refused_before_anything_starts(tmp_path: Path, out: str) -> None:
    with pytest.raises(UserError, match=r"Is a directory|is not a folder"):
        sweep([cell(1)], [], SweepRequest(("/no/such/python",), "m", "d", tmp_path / out), Silent())


def test_a_table_does_not_take_the_place_of_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no regular file"):
        sweep([cell(1)], [], SweepRequest(("/no/such/python",), "m", "d", tmp_path / "pipe"), Silent())


def test_the_table_is_named_after_what_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, _ = sweep([cell(1)], [], request(None), Silent())
    assert path == Path("fake@1.0+gabc-x-h200.jsonl")
    assert path.exists()
    cpu = Stamp("e", "r", Device("some CPU", "AVX2", 0, ""), {}, {}, "m", "d")
    assert table_name(cpu) == "e@r-cpu.jsonl"


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="counts descriptors in /proc")
def test_no_pipe_is_left_open(swept: Sweep) -> None:
    swept(1)
    before = len(list(DESCRIPTORS.iterdir()))
    swept(1, fake.SEGFAULTS, fake.POISONS)
    assert len(list(DESCRIPTORS.iterdir())) == before
