"""`kill -9` at random points, of the sweep and of its probe: the table is that of an unbroken sweep, to the byte."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_sweep import Silent

from fakes.drive_sweep import FAKE_PROBE, cell
from kaudit.sweep import SweepRequest, sweep
from processes import alive

CELLS = 100
DRIVER = Path(__file__).parent.parent / "fakes" / "drive_sweep.py"
DELAY = 0.005


def drive(out: Path, *flags: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(out), str(CELLS), *flags],
        env={**os.environ, "FAKE_DELAY": str(DELAY), "FAKE_PIDS": str(out.with_suffix(".pids"))},
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, float]:
    """The table of a sweep that nothing disturbs, and how long it takes, in seconds."""
    out = tmp_path_factory.mktemp("unbroken") / "t.jsonl"
    began = time.monotonic()
    assert drive(out).wait() == 0
    return out.read_bytes(), time.monotonic() - began


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_sweep_resumes_to_the_same_table(tmp_path: Path, unbroken: tuple[bytes, float], seed: int) -> None:
    table, seconds = unbroken
    out = tmp_path / "t.jsonl"
    chance = random.Random(seed)
    for _ in range(2):
        sweeping = drive(out, "--resume")
        time.sleep(chance.uniform(0.2, 0.75) * seconds)  # the last quarter goes into importing pandas
        sweeping.kill()
        sweeping.wait()
    assert drive(out, "--resume").wait() == 0
    assert out.read_bytes() == table
    assert {file.name for file in tmp_path.iterdir()} - {"t.pids"} == {"t.jsonl", "t.measure.parquet"}


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_probe_costs_nothing(
    tmp_path: Path, unbroken: tuple[bytes, float], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pids = tmp_path / "pids"
    monkeypatch.setenv("FAKE_DELAY", str(DELAY))
    monkeypatch.setenv("FAKE_PIDS", str(pids))

    def kill_once() -> None:
        while not (pids.exists() and pids.read_text().endswith("\n")):
            time.sleep(0.001)
        time.sleep(random.Random(seed).uniform(0.02, 0.9 * CELLS * DELAY))
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)

    out = tmp_path / "t.jsonl"
    killer = threading.Thread(target=kill_once)
    killer.start()
    cells = [cell(1, 64 + number) for number in range(CELLS)]
    sweep(cells, [], SweepRequest(FAKE_PROBE, "kill.yaml", "d1", out), Silent())
    killer.join()
    assert len(pids.read_text().split()) > 1
    assert out.read_bytes() == unbroken[0]


ORPHAN = """
import sys, time
from kaudit.child import probe_command, receive, send, start
from kaudit.wire import Batch, Opened
child = start(probe_command(sys.executable, "engines_for_tests.faulty:FaultyEngine", "cpu"))
send(child, Batch((sys.argv[1],)))
while not isinstance(receive(child, time.monotonic() + 100), Opened):
    pass
print(child.process.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads process states in /proc")
def test_a_probe_that_hangs_does_not_outlive_a_killed_sweep() -> None:
    faulty = pytest.importorskip("engines_for_tests.faulty")
    sweeping = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, cell(faulty.SLEEPS).id],
        env={**os.environ, "PYTHONPATH": str(DRIVER.parent.parent)},
        stdout=subprocess.PIPE,
    )
    assert sweeping.stdout is not None
    pid = int(sweeping.stdout.readline())
    sweeping.kill()
    sweeping.communicate()
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
