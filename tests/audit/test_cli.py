"""What a user meets: exit codes, one line a fault, data on stdout and words on stderr."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tables_for_tests import CELL, header, ran, table

from kaudit import cli, files, measure
from kaudit.check import faults
from kaudit.errors import UserError
from kaudit.hf_config import read_model
from kaudit.journal import journal
from kaudit.matrix import load
from kaudit.policy import load_policy, load_waivers
from kaudit.table import read, read_cells, read_stamp, write
from kaudit.terminal import guarded

DOCS = Path(__file__).parents[2] / "docs"
NO_TORCH = "import sys; sys.modules.update(torch=None, triton=None); from kaudit.cli import main; main()"


def kaudit(*arguments: object, code: str = "from kaudit.cli import main; main()") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write(before, table(ran("flash")))
    write(after, table(ran("eager")))
    return before, after


def test_diff_gate_and_show_need_no_torch(tables: tuple[Path, Path]) -> None:
    assert "silent_fallback: 1" in kaudit("diff", *tables, code=NO_TORCH).stdout
    assert kaudit("gate", *tables, code=NO_TORCH).returncode == 1
    assert CELL in kaudit("show", tables[0], code=NO_TORCH).stdout
    assert "attention" in kaudit("show", tables[0], "--cell", CELL, code=NO_TORCH).stdout


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "Missing command"),
        (["swep"], "No such command 'swep'"),
        (["diff"], "Missing argument"),
        (["diff", "nowhere.jsonl", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["diff", "--most", "-1", "a", "b"], "--most"),
        (["sweep", "nowhere"], "or a shipped matrix: "),
        (["sweep", "smoke", "--device", "tpu"], '--device: "tpu" is not one of'),
        (["sweep", "smoke", "--only", "nothing/*"], "--only: no cell of smoke matches"),
        (["sweep", "smoke", "--engine", "nosuch", "--out", "/tmp/x.jsonl"], 'no engine "nosuch"'),
        (["sweep", "smoke", "--python", "/nowhere/python"], "/nowhere/python"),
        (["matrix", "/"], "/"),
        (["show", "/"], "/"),
        (["engines", "--python", "/nowhere/python"], "/nowhere/python"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_2(arguments: list[str], fault: str) -> None:
    ended = kaudit(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = [line for line in ended.stderr.splitlines() if "starting the profiler" not in line]
    assert line.startswith("error: ")
    assert fault in line
    assert line.endswith(".md)")


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["show", "nowhere.jsonl"], "table.md"),
        (["sweep", "nowhere"], "matrix.md"),
        (["gate", "a", "b", "--policy", "nowhere.yaml"], "gate.md"),
        (["engines", "--python", "/nowhere/python"], "engines.md"),
        (["sweep", "smoke", "--out", "/nowhere/x.jsonl"], "capture.md"),
        (["explain", "silnt"], "commands.md"),
    ],
)
def test_an_error_names_its_page(arguments: list[str], page: str) -> None:
    assert kaudit(*arguments).stderr.endswith(f" (docs/{page})\n")
    assert (DOCS / page).is_file()


def test_of_many_faults_the_last_line_names_the_page(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("fail_on: [silence]\nrules: 3\n")
    first, last = kaudit("gate", "a", "b", "--policy", policy).stderr.splitlines()
    assert "docs/" not in first
    assert last.endswith(" (docs/gate.md)")


def test_a_bug_of_ours_is_one_line_that_names_the_traceback_s_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.setattr(sys, "argv", ["kaudit"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bug: KeyError: 'oops'")
    report = Path(line.rsplit(" ", 1)[1])
    assert "Traceback" in report.read_text()
    report.unlink()


def test_a_bug_of_ours_is_told_where_no_file_can_hold_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise self

    def broken() -> None:
        raise Wordless

    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/nowhere"])
    assert guarded(broken) == 3
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "bug: Wordless; please report it with the lines above"


def test_files_that_ran_out_are_the_user_s_to_mend(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    assert guarded(broken) == 2
    assert capsys.readouterr().err == "error: Too many open files; raise ulimit -n (docs/commands.md)\n"


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    command = f"{sys.executable} -m kaudit matrix release | head -n 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_the_user_s_to_mend() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "kaudit", "matrix", "smoke"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: stdout: No space left on device")
    assert "Traceback" not in ended.stderr


def test_the_version_and_what_stands_beside_it_are_told_without_torch() -> None:
    first, second, *packages = kaudit("--version", code=NO_TORCH).stdout.splitlines()
    assert first.startswith("kaudit 0.")
    assert second.startswith("python 3.")
    assert {line.split()[0] for line in packages} >= {"torch", "triton", "flashinfer-python"}


def test_help_imports_nothing_that_takes_its_time() -> None:
    """It is what a shell asks for each completion: 0.1 s."""
    code = (
        "import sys; from kaudit.terminal import guarded; from kaudit.cli import app;"
        "sys.argv = ['kaudit', '--help']; guarded(lambda: app(standalone_mode=False));"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    heavy = {"torch", "triton", "numpy", "pandas", "pyarrow", "pydantic", "rich", "yaml", "jinja2"}
    assert not heavy & set(kaudit(code=code).stderr.split())


def _check(path: Path) -> None:
    raise UserError(*faults(path))


def _resume(path: Path) -> None:
    with journal(path, header(), resume=True):
        pass


def _beside(reader: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: reader(path.with_name(path.name.removesuffix(".measure.parquet")))


MEASURES = {
    "times": _beside(measure.read_times),
    "numbers": _beside(measure.read_numbers),
    "timings": _beside(measure.read_timings),
    "graphs": _beside(measure.read_graphs),
}
READERS: dict[str, Callable[[Path], object]] = {
    "table": read,
    "stamp": read_stamp,
    "cells": read_cells,
    "check": _check,
    "journal": _resume,
    "policy": load_policy,
    "waivers": load_waivers,
    "matrix": lambda path: load(str(path)),
    "config": read_model,
    **MEASURES,
}

NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "device": (lambda path: path.symlink_to("/dev/zero"), "a pipe or a device, no regular file"),
    "pipe": (os.mkfifo, "a pipe or a device, no regular file"),
    "folder": (Path.mkdir, "Is a directory"),
    "unreadable": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "huge": (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "larger than|longer than|not a meas|is no unf"),
}


@pytest.mark.parametrize(
    ("reader", "kind"),
    # A link that leads nowhere is no measures.
    sorted({(reader, kind) for reader in READERS for kind in NO_FILES} - {(each, "unreadable") for each in MEASURES}),
)
def test_no_file_that_a_user_names_is_waited_for_or_read_for_ever(
    reader: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_LINE", 2 << 20)
    path = tmp_path / "named.measure.parquet"
    make, fault = NO_FILES[kind]
    make(path)
    with pytest.raises((UserError, ValueError), match=fault) as error:
        READERS[reader](path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_report_of_a_table_with_a_page_s_name_does_not_take_its_place(
    tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page = tables[0].rename(tables[0].with_name("table.html"))
    kept = page.read_bytes()
    assert guarded(lambda: cli.app(["report", str(page)], standalone_mode=False)) == 2
    assert f"error: {page}: is read here" in capsys.readouterr().err
    assert page.read_bytes() == kept


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="the system gives open files no path")
def test_a_pipe_that_the_shell_makes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, table(ran("flash")))
    asked = f"{sys.executable} -m kaudit diff <(cat {path}) {path}"
    ended = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "nothing changed\n")
