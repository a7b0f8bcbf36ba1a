"""The journal: what is in it is whole, what is torn never happened, and it answers for one sweep only."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from kaudit import files
from kaudit.errors import UserError
from kaudit.journal import Entry, journal
from kaudit.observation import WHOLE_CELL, Crashed, Row
from kaudit.table import SCHEMA, Device, Header, Stamp
from kaudit.wire import Measure

STAMP = Stamp("fake", "1.0", Device("NVIDIA H200", "sm_90", 132, "580.1"), {"torch": "2.8"}, {}, "smoke.yaml", "d1")
HEADER = Header(SCHEMA, "0.1.0", STAMP, {"attention": ("fast", "slow")})


def entry(name: str) -> Entry:
    return Entry(name, (Row(name, WHOLE_CELL, Crashed("SIGSEGV")),), (Measure(name, WHOLE_CELL, 1.5),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of two finished cells."""
    path = tmp_path / "t.jsonl.partial"
    with journal(path, HEADER, resume=False) as kept:
        kept.append([entry("a")])
        kept.append([entry("b")])
    return path


def resumed(path: Path, header: Header = HEADER) -> list[Entry]:
    with journal(path, header, resume=True) as kept:
        found = list(kept.entries())
        assert kept.done == {(entry.run, entry.cell) for entry in found}
        return found


def test_finished_cells_are_there_again(path: Path) -> None:
    assert resumed(path) == [entry("a"), entry("b")]


def test_the_runs_of_a_cell_are_told_apart(path: Path) -> None:
    again = msgspec.structs.replace(entry("a"), run="2")
    with journal(path, HEADER, resume=True) as kept:
        kept.append([again])
        assert ("", "a") in kept.done
        assert ("2", "a") in kept.done
        assert ("2", "b") not in kept.done
    assert resumed(path) == [entry("a"), entry("b"), again]


def test_a_journal_cut_anywhere_keeps_the_cells_that_are_whole(path: Path) -> None:
    whole = path.read_bytes()
    ends = [index for index, byte in enumerate(whole, start=1) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        complete = max(0, sum(end <= length for end in ends) - 1)
        with journal(path, HEADER, resume=True) as kept:
            assert list(kept.entries()) == [entry(name) for name in ["a", "b"][:complete]]
            kept.append([entry("c")])
        assert [kept.cell for kept in resumed(path)] == [*["a", "b"][:complete], "c"]


def test_a_journal_with_nothing_in_it_is_nothing_to_lose(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.partial"
    path.write_bytes(msgspec.json.encode(HEADER) + b"\n")
    with journal(path, msgspec.structs.replace(HEADER, kaudit="0.2.0"), resume=False) as kept:
        assert not kept.done
    assert not path.exists()


def test_finished_cells_are_not_overwritten_unasked(path: Path) -> None:
    before = path.read_bytes()
    with (
        pytest.raises(UserError, match="an unfinished sweep of 2 cells; go on with --resume"),
        journal(path, HEADER, resume=False),
    ):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("content", [b"my only copy", b"my only copy\n", b"{}", b'{"schem": 1}\n', b"\n", b"a\nb\nc\n"])
def test_a_file_that_is_no_journal_is_left_alone(
    tmp_path: Path, content: bytes, resume: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_LINE", 11)  # bytes: less than some of these lines have
    path = tmp_path / "t.jsonl.partial"
    path.write_bytes(content)
    with (
        pytest.raises(UserError, match=r"partial: is no unfinished sweep, and would become one; move it, or choose"),
        journal(path, HEADER, resume=resume),
    ):
        pass
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (msgspec.structs.replace(HEADER, kaudit="0.2.0"), r"kaudit was 0\.1\.0, is now 0\.2\.0"),
        (
            msgspec.structs.replace(HEADER, stamp=msgspec.structs.replace(STAMP, matrix_digest="d2")),
            r"stamp\.matrix_digest was d1, is now d2",
        ),
        (
            msgspec.structs.replace(HEADER, stamp=msgspec.structs.replace(STAMP, versions={"torch": "2.9"})),
            r"stamp\.versions\.torch was 2\.8, is now 2\.9",
        ),
        (
            msgspec.structs.replace(HEADER, stamp=msgspec.structs.replace(STAMP, environment={"FLASH": "1"})),
            r"stamp\.environment\.FLASH was not set, is now 1",
        ),
        (msgspec.structs.replace(HEADER, paths={"attention": ("fast",)}), r"paths\.attention was"),
    ],
)
def test_a_journal_of_another_sweep_is_refused_by_field(path: Path, header: Header, named: str) -> None:
    before = path.read_bytes()
    with pytest.raises(UserError, match=named):
        resumed(path, header)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        b'{"cell":"a","rows":[{"cell":"a"',
        b'{"cell":"a","rows":[]}',
        b'{"cell":"a","rows":[{"cell":"c","op":"*","outcome":{"type":"crashed","how":""}}]}',
        b'{"cell":"a","rows":[],"x":' + b"[" * 100_000,
    ],
    ids=["torn", "no-rows", "of-another-cell", "deep"],
)
def test_a_line_that_is_no_cell_is_named(path: Path, line: bytes) -> None:
    header, _, second, end = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([header, line, second, end]))
    with pytest.raises(UserError, match=r"\.partial:2: not a finished cell"):
        resumed(path)


def test_two_sweeps_do_not_write_one_table(path: Path) -> None:
    with (
        journal(path, HEADER, resume=True),
        pytest.raises(UserError, match="another sweep is writing it"),
        journal(path, HEADER, resume=True),
    ):
        pass


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="No such file or directory; choose another --out"),
        journal(tmp_path / "missing" / "t.partial", HEADER, resume=False),
    ):
        pass


def test_a_full_disk_loses_nothing_that_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(file: int, data: memoryview) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) // 2])

    with journal(path, HEADER, resume=True) as kept:
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(UserError, match="No space left on device; mend that, then go on with --resume"):
            kept.append([entry("c")])
        monkeypatch.undo()
    assert [kept.cell for kept in resumed(path)] == ["a", "b"]
