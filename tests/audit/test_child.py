"""What a probe process cannot do to the sweep: fill its memory, its log or the disk, or hold it up for ever."""

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from test_sweep import Silent, request

from fakes import fake_probe as fake
from fakes.drive_sweep import cell
from kaudit import child, exchange
from kaudit.asking import Printed, ask
from kaudit.errors import ProbeError, UserError
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


def started(limit: int) -> UserError | None:
    """What comes of a start where no descriptor may have this number or a higher one, and no descriptor is left."""
    before = set(Path("/proc/self/fd").iterdir())
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        child.kill(child.start(["/bin/cat"]))
    except UserError as error:
        return error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        assert set(Path("/proc/self/fd").iterdir()) == before
    return None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_files_that_ran_out_are_no_fault_of_a_python() -> None:
    with tempfile.TemporaryFile() as lowest:  # which also has tempfile look for its folder before
        told = list(map(started, range(lowest.fileno() + 1, lowest.fileno() + 40)))
    short = [str(error) for error in told if error]
    assert len(short) >= 8
    assert set(short) == {
        "no probe can be started: Too many open files; raise ulimit -n, or take fewer --jobs if there are several"
    }
    assert told[-1] is None


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EAGAIN, "no probe can be started: Resource temporarily unavailable; raise ulimit -u, or the"),
        (errno.ENOMEM, "no probe can be started: Cannot allocate memory; free some memory, or take fewer --jobs"),
        (errno.ENFILE, "no probe can be started: Too many open files in system; raise fs.file-max, or take"),
        (errno.EACCES, "--python: python: Permission denied; name a Python that has the engine"),
    ],
)
def test_what_ran_out_is_told_from_what_a_python_lacks(number: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("subprocess.Popen", popen)
    with pytest.raises(UserError, match=f"^{said}"):
        child.start(["python"])
    if number != errno.EACCES:
        with pytest.raises(UserError, match=said.partition(": ")[2].partition(",")[0]):
            ask("python", "answer", "any.module")


def test_without_a_temporary_folder_no_probe_starts_and_a_doctor_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nowhere"])
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho answer; echo words >&2")
    python.chmod(0o755)
    with pytest.raises(
        UserError, match=r"^no temporary file can be written: No usable .*; set TMPDIR to a folder with"
    ):
        child.start([str(python)])
    if sys.platform == "linux":
        assert ask(str(python), "answer", "any.module") == Printed(b"answer\n", "", "words")


DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "wait.py", line 1 in idle

Current thread 0x00007f02 (most recent call first):
  File "kernel.py", line 3 in launch
  File "cell.py", line 9 in run

Extension modules: torch._C, numpy._core (total: 2)
"""
FRAME = 'Segmentation fault: File "kernel.py", line 3 in launch'


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("step 1\n" + DUMP, FRAME),
        (DUMP.partition("\nExtension")[0], FRAME),
        (DUMP.replace("\nExt", "\nThread 0x00007f03 (most recent call first):\n  File...\n...\n\nExt"), FRAME),
        (DUMP.replace("Current thread 0x00007f02", "Thread 0x00007f02"), "Segmentation fault"),
        (DUMP.replace("launch", "compile") + DUMP, FRAME),
        (
            DUMP + "worker 3 died, compiling here\nCUDA error: an illegal memory access\n",
            "CUDA error: an illegal memory access",
        ),
        (DUMP.partition("\nExtension")[0] + "Aborted\n", "Aborted"),
        ("", ""),
    ],
    ids=["dump", "no modules", "more threads", "thread unknown", "two", "went on", "went on at once", "nothing"],
)
def test_the_last_words_are_a_dump_s_only_where_nothing_follows_it(printed: str, words: str) -> None:
    with tempfile.TemporaryFile() as output:
        output.write(printed.encode())
        output.flush()
        assert child.last_words(output) == words


def test_the_last_words_of_a_process_that_died_are_where_it_did() -> None:
    code = "import faulthandler, os; faulthandler.enable(); os.abort()"
    with tempfile.TemporaryFile() as output:
        subprocess.run([sys.executable, "-c", code], stderr=output, check=False)
        assert child.last_words(output) == 'Aborted: File "<string>", line 1 in <module>'
