import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from reports_for_tests import GOLDEN
from tables_for_tests import CELL, announced, header, ran

from kaudit.check import faults
from kaudit.observation import Row
from kaudit.table import Table, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = [
        Row(CELL.replace("b8q", f"b{batch}q"), "attention", ran("eager", announced("flash"))) for batch in (1, 2, 3)
    ]
    write(tmp_path / "table.jsonl", Table.of(header(), rows))
    return tmp_path / "table.jsonl"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_what_kaudit_wrote_is_in_order(path: Path) -> None:
    assert list(faults(path)) == []


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda text: text[: text.rindex("\n", 0, -1) + 1], ": has 2 of its 3 rows"),
        (lambda text: text[:-9], ":4: not a row of a table"),
        (lambda text: re.sub(r"(\n.*)(\n.*)(\n.*\n)", r"\1\3", text) + re.findall("\n(.*)", text)[1] + "\n", ":3: not"),
        (lambda text: text.replace(":", ": "), ":1: not as kaudit writes it"),
        (lambda text: text[:-1], ":5: not as kaudit writes it"),
        (lambda text: text.replace("\n", "\r\n"), ': its lines end in CRLF; write "*.jsonl -text" into .gitattributes'),
        (lambda text: text.replace("b2q", "b02q"), ":3: shape"),
        (lambda _: "", ": the file is empty"),
    ],
    ids=["cut", "cut in a row", "unsorted", "spaced", "no last line end", "Windows line ends", "no id", "empty"],
)
def test_each_fault_is_one_line_that_says_where(path: Path, edit: Callable[[str], str], fault: str) -> None:
    path.write_text(edit(path.read_text()), newline="")
    (line,) = faults(path)
    assert line.startswith(f"{path}{fault}")


def test_the_hook_runs_the_command_on_every_table_that_changed(path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert re.search(hook["files"], path.name)
    program, *arguments = hook["entry"].split()
    assert program == "kaudit"
    broken = path.with_name("broken.jsonl")
    broken.write_text(path.read_text()[:-9])
    command = [sys.executable, "-m", "kaudit", *arguments, path, broken, path.with_name("nowhere.jsonl")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert [line.partition(": ")[2].split(":")[0] for line in ended.stderr.splitlines()] == [
        str(broken),
        str(path.with_name("nowhere.jsonl")),
    ]
