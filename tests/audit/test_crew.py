"""A sweep on several GPUs: the table is that of one GPU, to the byte, whatever becomes of the probes."""

import dataclasses
import os
import random
import signal
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

import pandas as pd
import pytest
from test_sweep import Silent

from fakes import fake_probe as fake
from fakes.drive_sweep import FAKE_PROBE, cell
from kaudit.beliefs import Beliefs
from kaudit.conduct import Again
from kaudit.crew import Job, Work
from kaudit.errors import UserError
from kaudit.host import MOST_UNSEEN
from kaudit.journal import Entry
from kaudit.observation import WHOLE_CELL, Crashed, Ran, Refused, Row, Unseen
from kaudit.plan import FIRST_CELLS
from kaudit.runs import Run
from kaudit.sweep import SweepRequest, sweep

GPUS = ("GPU-a", "GPU-b", "GPU-c")
CELLS = [cell(1, 64 + number) for number in range(200)]
MIXED = [*CELLS[:60], cell(fake.SEGFAULTS), cell(fake.UNSEEN_IN_COMPANY), cell(fake.POISONS), cell(fake.KILLS_CAPTURE)]


def request(out: Path, gpus: tuple[str, ...] = GPUS, *, resume: bool = False, jobs: int = 1) -> SweepRequest:
    return SweepRequest(FAKE_PROBE, "crew.yaml", "d1", out, resume=resume, gpus=gpus, jobs=jobs)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gets a line for each probe that starts: its CUDA_VISIBLE_DEVICES."""
    path = tmp_path / "gpus"
    monkeypatch.setenv("FAKE_GPUS", str(path))
    return path


def test_the_table_does_not_tell_how_the_cells_were_shared_out(tmp_path: Path, log: Path) -> None:
    cells = [*MIXED, *(cell(2, 64 + number) for number in range(60))]
    one, several = tmp_path / "one.jsonl", tmp_path / "several.jsonl"
    sweep(cells, [], request(one, ()), Silent())
    assert set(log.read_text().split()) == {os.environ.get("CUDA_VISIBLE_DEVICES", "None")}
    log.unlink()
    told = Silent()
    sweep(cells, [], request(several), told)
    assert set(log.read_text().split()) == set(GPUS)
    assert several.read_bytes() == one.read_bytes()
    assert list(pd.read_parquet(tmp_path / "several.measure.parquet")["cell"]) == list(
        pd.read_parquet(tmp_path / "one.measure.parquet")["cell"]
    )
    assert told.counts[-1] == len(cells)
    assert "GPU GPU-a: waking up" in told.notes


def test_jobs_share_a_gpu_and_the_table_does_not_tell(tmp_path: Path, log: Path) -> None:
    one, several = tmp_path / "one.jsonl", tmp_path / "several.jsonl"
    sweep(MIXED, [], request(one, ()), Silent())
    log.unlink()
    told = Silent()
    sweep(MIXED, [], request(several, GPUS[:1], jobs=3), told)
    assert several.read_bytes() == one.read_bytes()
    assert {note for note in told.notes if "waking up" in note} == {f"job {job}: waking up" for job in (1, 2, 3)}


def test_a_cell_that_runs_alone_has_its_gpu_to_itself() -> None:
    work = Work([Run("", CELLS[:4], fresh=False)], 2, sharing=True)
    first, second = work.take(), work.take()
    assert first
    assert second
    work.done(first, [Again(first.cells[0])], 1.0)
    waiting: SimpleQueue[Job | None] = SimpleQueue()
    thread = threading.Thread(target=lambda: waiting.put(work.take()))
    thread.start()
    with pytest.raises(Empty):
        waiting.get(timeout=0.3)
    work.done(second, [], 1.0)
    alone = waiting.get(timeout=10)
    thread.join()
    assert alone == Job(first.run, first.cells[:1], Again(first.cells[0]))


def test_memory_and_time_that_other_jobs_take_are_no_outcome(tmp_path: Path) -> None:
    cells = [
        *CELLS[:20],
        *(cell(fate, 64 + n) for n in range(3) for fate in (fake.STARVES_IN_COMPANY, fake.HANGS_IN_COMPANY)),
    ]
    asked = dataclasses.replace(request(tmp_path / "t.jsonl", (), jobs=2), cell_limit=2.0)
    _, table = sweep(cells, [], asked, Silent())
    assert {type(row.outcome) for row in table.rows.values()} == {Ran}


@pytest.mark.parametrize("fate", [fake.BREAKS_THE_NEXT, fake.HANGS_THE_NEXT])
def test_without_a_wait_after_each_cell_nobody_is_blamed_for_another(tmp_path: Path, fate: int) -> None:
    cells = [*CELLS[:8], cell(fate), *CELLS[8:30]]
    one, several = tmp_path / "one.jsonl", tmp_path / "several.jsonl"
    sweep(cells, [], dataclasses.replace(request(one, ()), cell_limit=1.0), Silent())
    told = Silent()
    sweep(cells, [], dataclasses.replace(request(several, (), jobs=2), cell_limit=1.0), told)
    assert several.read_bytes() == one.read_bytes()
    assert any(note.endswith("cells run again, with a wait after each") for note in told.notes)


def test_an_exception_in_company_counts_only_if_one_like_it_comes_alone(tmp_path: Path, log: Path) -> None:
    odd = [cell(fake.RAISES, 64 + number) for number in range(9)]
    victims = [cell(fake.RAISES_IN_COMPANY, 64 + number) for number in range(3)]
    _, table = sweep([*CELLS[:9], *victims, *odd], [], request(tmp_path / "t.jsonl", ()), Silent())
    crashed = {row.cell for row in table.rows.values() if isinstance(row.outcome, Crashed)}
    assert crashed == {one.id for one in odd}
    assert len(log.read_text().split()) == 1 + len(victims) + Beliefs.ENOUGH


def test_words_that_did_not_come_alone_are_believed_of_no_cell_any_more() -> None:
    crashed = Entry("a", (Row("a", WHOLE_CELL, Crashed("ValueError: 7 is odd")),))
    ran = Entry("a", (Row("a", WHOLE_CELL, Refused("no")),))
    beliefs = Beliefs()
    for _ in range(Beliefs.ENOUGH):
        assert not beliefs.believes(crashed)
        beliefs.learn(crashed, Entry("b", (Row("b", WHOLE_CELL, Crashed("ValueError: 9 is odd")),)))
    assert beliefs.believes(crashed)
    beliefs.learn(crashed, ran)
    assert not beliefs.believes(crashed)


@pytest.mark.parametrize("gpus", [GPUS[:1], GPUS[:2]], ids=len)
def test_a_profiler_that_shows_nothing_ends_the_sweep_soon_and_resume_goes_on(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...]
) -> None:
    *_, blind = gpus
    monkeypatch.setenv("FAKE_BLIND", blind)
    monkeypatch.setenv("FAKE_DELAY", "0.01")
    out, whole, told, threads = tmp_path / "t.jsonl", tmp_path / "whole.jsonl", Silent(), threading.active_count()
    nothing = r"^the profiler shows nothing here: no kernels; run kaudit doctor, then go on with --resume$"
    with pytest.raises(UserError, match=nothing) as caught:
        sweep(CELLS, [], request(out, gpus), told)
    assert caught.value.page == "docs/capture.md"
    assert threading.active_count() == threads
    asked = "3 cells in a row were not seen alone; asking a fresh probe without any cell"
    assert [note for note in told.notes if "in a row" in note] == [f"GPU {blind}: {asked}" if gpus[1:] else asked]
    assert log.read_text().split().count(blind) == 1 + MOST_UNSEEN + 1
    assert not any("unseen" in kept.read_text() for kept in tmp_path.glob("*.partial"))
    monkeypatch.delenv("FAKE_BLIND")
    monkeypatch.delenv("FAKE_DELAY")
    sweep(CELLS, [], request(out, gpus, resume=True), Silent())
    sweep(CELLS, [], request(whole, ()), Silent())
    assert out.read_bytes() == whole.read_bytes()


def test_cells_that_are_unseen_alone_too_say_nothing_of_others(tmp_path: Path, log: Path) -> None:
    unseen = [cell(fake.UNSEEN, kv_len) for kv_len in range(1, 8)]
    seen_alone = [cell(fake.UNSEEN_IN_COMPANY, kv_len) for kv_len in range(1, 9)]
    tables = []
    for gpus in (GPUS[:1], GPUS[:2]):
        told = Silent()
        path, table = sweep([*unseen, *seen_alone], [], request(tmp_path / f"{len(gpus)}.jsonl", gpus), told)
        outcomes = {row.cell: type(row.outcome) for row in table.rows.values()}
        assert outcomes == {one.id: Unseen for one in unseen} | {one.id: Ran for one in seen_alone}
        asked = sum("in a row" in note for note in told.notes)
        assert gpus[1:] or asked == len(unseen) // MOST_UNSEEN
        assert len(log.read_text().split()) == len(gpus) + len(unseen) + len(seen_alone) + asked
        log.unlink()
        tables.append(path.read_bytes())
    assert tables[0] == tables[1]


def test_a_cell_that_is_seen_alone_ends_the_row_of_those_that_are_not(tmp_path: Path) -> None:
    bad = [cell(fake.UNSEEN, kv_len) for kv_len in range(1, 5)]
    told = Silent()
    cells = [*CELLS[:FIRST_CELLS], *bad[:2], cell(fake.UNSEEN_IN_COMPANY), *bad[2:]]
    _, table = sweep(cells, [], request(tmp_path / "t.jsonl", ()), told)
    assert {row.cell for row in table.rows.values() if isinstance(row.outcome, Unseen)} == {one.id for one in bad}
    assert not any("in a row" in note for note in told.notes)


def test_a_thread_that_cannot_start_ends_the_sweep_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, start, threads = iter((True, False)), threading.Thread.start, threading.active_count()

    def limited(thread: threading.Thread) -> None:
        if not next(starts):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(UserError, match=r"^no thread can be started: Resource temporarily unavailable; .*ulimit -u"):
        sweep(CELLS, [], request(tmp_path / "t.jsonl"), Silent())
    assert threading.active_count() == threads


def test_one_cell_that_kills_its_probe_is_one_row_whatever_it_shares_the_gpu_with(tmp_path: Path) -> None:
    _, table = sweep([cell(fake.KILLS_CAPTURE)], [], request(tmp_path / "t.jsonl", (), jobs=2), Silent())
    (row,) = table.rows.values()
    assert isinstance(row.outcome, Unseen)


@pytest.mark.timed
def test_several_gpus_work_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DELAY", "0.01")
    seconds = []
    for gpus in (GPUS[:1], GPUS[:2]):
        told = Timed()
        sweep(CELLS, [], request(tmp_path / f"{len(gpus)}.jsonl", gpus), told)
        seconds.append(told.took)
    assert seconds[0] > 1.6 * seconds[1]


class Timed(Silent):
    """From the start of the work to its last cell, in seconds."""

    def begin(self, done: int, total: int) -> None:
        super().begin(done, total)
        self.began = time.monotonic()

    def finished(self, done: int) -> None:
        super().finished(done)
        self.took = time.monotonic() - self.began


def test_gpus_that_differ_are_refused_by_the_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_H100", "GPU-b")
    with pytest.raises(
        UserError, match=r"stamp\.device\.name is NVIDIA H200 on GPU-a and NVIDIA H100 on GPU-b; .*each kind by itself"
    ):
        sweep(CELLS, [], request(tmp_path / "t.jsonl"), Silent())
    assert not list(tmp_path.iterdir())


def test_an_interrupted_sweep_of_several_gpus_ends_at_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DELAY", "0.01")
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids"))
    out = tmp_path / "t.jsonl"
    told = Silent(interrupt_at=CELLS[110].id)
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        sweep(CELLS, [], request(out), told)
    assert told.notes[-1].startswith("interrupted: ")
    assert threading.active_count() == threads
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    sweep(CELLS, [], request(out, GPUS[:2], resume=True), Silent())  # fewer GPUs than before
    whole = tmp_path / "whole.jsonl"
    sweep(CELLS, [], request(whole, ()), Silent())
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_in_the_main_thread_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DELAY", "0.05")  # as a user's Ctrl-C comes, the threads are in their probes
    threads = threading.active_count()
    alarm = threading.Timer(1.5, signal.raise_signal, [signal.SIGINT])
    alarm.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sweep(CELLS, [], request(tmp_path / "t.jsonl"), Silent())
    alarm.join()
    assert time.monotonic() - began < 10
    assert threading.active_count() == threads


def test_what_ends_one_gpus_probe_ends_the_sweep_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_EMPTY", "dies")
    cells = [*CELLS[:8], *(cell(fake.KILLS_CAPTURE, kv_len) for kv_len in range(1, 40))]
    threads = threading.active_count()
    with pytest.raises(UserError, match=r"GPU GPU-.: the probe died 7 times in a row .*--resume"):
        sweep(cells, [], request(tmp_path / "t.jsonl"), Silent())
    assert threading.active_count() == threads


@pytest.mark.parametrize("seed", range(4))
def test_killed_probes_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    pids = tmp_path / "pids"
    monkeypatch.setenv("FAKE_DELAY", "0.005")
    monkeypatch.setenv("FAKE_PIDS", str(pids))
    chance = random.Random(seed)

    def kill_two() -> None:
        while not (pids.exists() and len(pids.read_text().split()) >= len(GPUS)):
            time.sleep(0.001)
        for pid in chance.sample(pids.read_text().split()[: len(GPUS)], 2):
            time.sleep(chance.uniform(0.01, 0.15))
            os.kill(int(pid), signal.SIGKILL)

    killer = threading.Thread(target=kill_two)
    killer.start()
    sweep(CELLS, [], request(tmp_path / "t.jsonl"), Silent())
    killer.join()
    monkeypatch.delenv("FAKE_DELAY")
    sweep(CELLS, [], request(tmp_path / "whole.jsonl", ()), Silent())
    assert (tmp_path / "t.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
