"""What is written: looked at before anything runs, and over nothing that is read."""

import os
from pathlib import Path

import pytest
from tables_for_tests import CELL

from kaudit import cli, measure
from kaudit.atomic import beside
from kaudit.terminal import guarded


@pytest.mark.parametrize("command", [("sweep", "smoke", "--device", "cpu"), ("merge", "a.jsonl")], ids=" ".join)
@pytest.mark.parametrize("name", ["two", "two.json", "two.jsonl.gz", "two.measure.parquet"])
def test_a_table_s_name_tells_its_measures_from_those_of_another(
    name: str, command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of `two` and of `two.jsonl` would be one file."""
    out = tmp_path / name
    assert guarded(lambda: cli.app([*command, "--out", str(out)], standalone_mode=False)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {out}: is no table's name; choose an --out that ends in .jsonl")
    assert not list(tmp_path.iterdir())


def test_the_longest_name_of_a_sweep_is_looked_at_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    spare = longest - len(beside(measure.measure_path(tmp_path / ".jsonl")).name)
    out = tmp_path / ("x" * (spare + 1) + ".jsonl")
    assert (
        guarded(lambda: cli.app(["sweep", "smoke", "--device", "cpu", "--out", str(out)], standalone_mode=False)) == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert ".measure.parquet.tmp: File name too long; choose a shorter name (docs/capture.md)" in line
    assert not list(tmp_path.iterdir())


WRITERS = (
    ("sweep", "{matrix}", "--device", "cpu", "--out"),
    ("merge", "{one}", "{two}", "--out"),
    ("diff", "{one}", "{two}", "--output"),
    ("gate", "{one}", "{two}", "--policy", "{policy}", "--waivers", "{waivers}", "--expect", "{matrix}", "--output"),
    ("show", "{one}", "--timing", "--csv"),
    ("report", "{one}", "--out"),
    ("report", "{one}", "{two}", "--out"),
    ("matrix", "from-config", "{config}", "--out"),
    ("bench", CELL, "--csv"),
    ("bench", CELL, "--parquet"),
)


@pytest.mark.parametrize("writer", WRITERS, ids=" ".join)
def test_what_is_written_is_looked_at_before_anything_is_read_and_is_none_of_that(
    writer: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file has anything in it that could be read."""
    names = {name: tmp_path / f"{name}.jsonl" for name in ("matrix", "one", "two", "policy", "waivers", "config")}
    arguments = [argument.format(**names) for argument in writer]
    read = [path for path in names.values() if str(path) in arguments]
    if "from-config" not in writer and "sweep" not in writer:
        read += [measure.measure_path(path) for path in read if path.stem in ("one", "two")]
    for path in read:
        path.write_text("unread")
    (tmp_path / "folder").mkdir()

    def told(out: Path) -> str:
        assert guarded(lambda: cli.app([*arguments, str(out)], standalone_mode=False)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        return line

    for out in read:
        assert told(out).startswith(f"error: {out}: is read here, and would be written over; name another file")
    assert told(tmp_path / "folder").startswith(f"error: {tmp_path / 'folder'}: Is a directory; ")
    assert "File name too long; choose a shorter name" in told(tmp_path / ("x" * 245 + ".jsonl"))
    assert told(tmp_path / "none" / "f").startswith(f"error: {tmp_path / 'none' / 'f'}: {tmp_path / 'none'} is not a f")
    assert all(path.read_text() == "unread" for path in read)


@pytest.mark.parametrize("command", [("sweep", "smoke", "--device", "cpu"), ("merge", "a.jsonl")], ids=" ".join)
def test_a_table_and_its_measures_take_the_place_of_files_only(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "beside.measure.parquet")
    for out, at in (("pipe.jsonl", "pipe.jsonl"), ("beside.jsonl", "beside.measure.parquet")):
        assert guarded(lambda out=out: cli.app([*command, "--out", str(tmp_path / out)], standalone_mode=False)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {tmp_path / at}: is no regular file, and would be replaced by one; choose ")
