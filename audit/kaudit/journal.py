"""The partial result of a sweep: a header, then one line per finished cell, appended and fsynced batch by batch.

A cell's rows and measures stand on one line, so a line that ends in a newline is a cell that is complete, and what a
killed sweep left after the last newline never happened. What is in the file is not kept in memory as well.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import msgspec
from msgspec import Struct

from kaudit import files
from kaudit.errors import UserError
from kaudit.headers import difference
from kaudit.observation import Row
from kaudit.table import Header, decode_header
from kaudit.wire import Measure


class Entry(Struct, frozen=True, omit_defaults=True):
    """All that is known of one finished cell. `run`: which of the sweep's runs it is of (runs.Run), "" the first."""

    cell: str
    rows: tuple[Row, ...]
    measures: tuple[Measure, ...] = ()
    run: str = ""

    def __post_init__(self) -> None:
        if {row.cell for row in self.rows} != {self.cell}:
            raise ValueError(f"no rows, or rows of another cell than {self.cell}")


_decoder = msgspec.json.Decoder(Entry)


@dataclass(frozen=True)
class Journal:
    """An open journal, locked against other sweeps. `done`: run and cell of each entry, an earlier sweep's included."""

    path: Path
    file: int
    done: set[tuple[str, str]]

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep finished cells for good. Raises UserError if the disk does not take them."""
        _write(self.file, self.path, entries)
        self.done.update((entry.run, entry.cell) for entry in entries)

    def entries(self) -> Iterator[Entry]:
        """All that were appended, from the file. Raises UserError where it was spoilt meanwhile."""
        return _entries(self.file, self.path)


@contextmanager
def journal(path: Path, header: Header, *, resume: bool) -> Iterator[Journal]:
    """Open a journal, new or to resume. Left behind with cells in it, it stays; one without any is deleted.

    Raises UserError if another sweep holds it, if it cannot be written, if it is none, if it holds cells and `resume`
    is not asked for, or if it was written under another header: the message names the field.
    """
    file = _open_locked(path)
    try:
        kept = Journal(path, file, _restore(file, path, header, resume=resume))
        try:
            yield kept
        finally:
            if not kept.done:
                path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _open_locked(path: Path) -> int:
    while True:
        try:
            with suppress(FileNotFoundError):
                files.check_regular(path)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; choose another --out") from None
        try:
            flock(file, LOCK_EX | LOCK_NB)
            if _is_at(file, path):
                return file
        except BlockingIOError:
            os.close(file)
            raise UserError(f"{path}: another sweep is writing it; wait for it or choose another --out") from None
        except OSError as error:
            os.close(file)
            raise UserError(f"{path}: cannot be locked: {error.strerror}; choose another --out") from None
        os.close(file)  # the sweep that held it has just deleted it: what we locked has no name any more


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _restore(file: int, path: Path, header: Header, *, resume: bool) -> set[tuple[str, str]]:
    if not _begun(file):
        raise UserError(f"{path}: is no unfinished sweep, and would become one; move it, or choose another --out")
    count = sum(1 for _ in _lines(file, path)) - 1
    if count < 1:
        os.ftruncate(file, 0)
        _write(file, path, [header])
        return set()
    if not resume:
        raise UserError(f"{path}: an unfinished sweep of {count} cells; go on with --resume, or delete it")
    try:
        before = decode_header(next(_lines(file, path)), str(path), Header)
    except UserError:
        raise UserError(f"{path}:1: not the header of a sweep by this kaudit; delete the file to sweep anew") from None
    if changed := difference(before, header):
        raise UserError(f"{path}: {changed}; undo that to resume, or delete the file to sweep anew")
    done = {(entry.run, entry.cell) for entry in _entries(file, path)}
    os.ftruncate(file, sum(map(len, _lines(file, path))))
    return done


def _begun(file: int) -> bool:
    """Whether a file begins as a journal does, as far as it goes."""
    start = b'{"schema":'
    return start.startswith(os.pread(file, len(start), 0))


def _entries(file: int, path: Path) -> Iterator[Entry]:
    for number, line in enumerate(_lines(file, path), start=1):
        if number > 1:  # the first is the header
            try:
                yield _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                what = f"not a finished cell: {error}"
                raise UserError(f"{path}:{number}: {what}; delete the file to sweep anew") from None


def _lines(file: int, path: Path) -> Iterator[bytes]:
    """The lines that are whole, with their newlines. Raises UserError where it cannot be read."""
    try:
        with os.fdopen(os.dup(file), "rb") as reader:
            reader.seek(0)
            yield from (line for line in files.lines(reader) if line.endswith(b"\n"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; mend that, or delete the file to sweep anew") from None


def _write(file: int, path: Path, lines: Sequence[Header | Entry]) -> None:
    left = memoryview(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    try:
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; mend that, then go on with --resume") from None
