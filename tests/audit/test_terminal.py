"""Manners on every terminal: signs, colours, widths, completion; and tables from machines that write otherwise."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tables_for_tests import CELL, header, ran

from kaudit.cli import app
from kaudit.observation import Rejection, Row, Said
from kaudit.table import Table, encoded, read

MAIN = "import sys; sys.argv[0] = 'kaudit'; from kaudit.cli import main; main()"
COMMANDS = [str(command.name or command.callback.__name__) for command in app.registered_commands if command.callback]


def kaudit(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, timeout=60)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One row with a reason beyond every old encoding, from a machine that writes its paths with backslashes."""
    stamp = header(environment={"CUDA_PATH": r"C:\Program Files\CUDA\v13.0"})
    said = Rejection("flash", "announced", (Said(r"D:\kernels\flash.dll: 不行"),))
    path = tmp_path / "table.jsonl"
    path.write_bytes(encoded(Table.of(stamp, [Row(CELL, "attention", ran("split", said))])))
    return path


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_story_is_told_in_the_signs_that_the_terminal_has(table: Path, encoding: str) -> None:
    told = kaudit("show", table, "--cell", CELL, PYTHONIOENCODING=encoding)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.decode(encoding).splitlines()
    ours = encoding == "utf-8"
    assert ("  → split" if ours else "  -> split") in lines
    assert ("  × flash" if encoding != "ascii" else "  x flash") in lines
    assert any(line.endswith("flash.dll: 不行" if ours else "flash.dll: ??") for line in lines)


def test_an_error_in_signs_that_the_terminal_lacks_is_still_one_line() -> None:
    ended = kaudit("show", "表→.jsonl", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    (line,) = ended.stderr.decode("ascii").splitlines()
    assert ended.returncode == 2
    assert line.startswith("error: ?->.jsonl: No such file")


def test_a_c_locale_is_no_fault(table: Path) -> None:
    told = kaudit("show", table, "--cell", CELL, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert told.returncode == 0
    assert b"-> split" in told.stdout


def test_a_table_that_a_checkout_gave_crlf_reads_the_same(table: Path, tmp_path: Path) -> None:
    other = tmp_path / "crlf.jsonl"
    other.write_bytes(table.read_bytes().replace(b"\n", b"\r\n"))
    assert read(other) == read(table)


def test_paths_of_windows_are_text(table: Path) -> None:
    told = kaudit("show", table, "--cell", CELL).stdout.decode()
    assert r"CUDA_PATH=C:\Program Files\CUDA\v13.0" in told
    assert r"announced: D:\kernels\flash.dll" in told


@pytest.mark.parametrize("no_color", ["", "1"])
def test_only_a_bar_has_colours_and_none_where_the_user_wants_none(no_color: str) -> None:
    code = (
        "from kaudit.progress import progress\n"
        "with progress() as bar: bar.begin(0, 10); bar.opened('a cell'); bar.finished(5); bar.note('a note')"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color, "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", code], env=environment, stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    drawn = b""
    try:
        while more := os.read(ours, 65536):
            drawn += more
    except OSError:  # Linux says EIO at the end of a terminal
        pass
    os.close(ours)
    assert b"a note" in drawn
    assert (b"\x1b[3" in drawn or b"\x1b[1;3" in drawn or b"38;5" in drawn) == (no_color == "")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str) -> None:
    told = kaudit(*command.split(), "--help", COLUMNS="80").stdout.decode()
    assert told.startswith("Usage:")
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("kaudit sw", "sweep"), ("kaudit gate --pol", "--policy"), ("kaudit explain silent_", "silent_fallback")],
)
def test_bash_completes(typed: str, offered: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    told = kaudit(_KAUDIT_COMPLETE="complete_bash", **words)
    assert told.stdout.decode().split() == [offered]
