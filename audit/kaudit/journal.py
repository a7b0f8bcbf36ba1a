"""The partial result of a sweep: a header, then one line per finished cell, appended and fsynced batch by batch.

A cell's rows and measures stand on one line, so a line that ends in a newline is a cell that is complete, and what a
killed sweep left after the last newline never happened.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kaudit.errors import UserError
from kaudit.observation import Row
from kaudit.table import Header, decode_header
from kaudit.wire import Measure


class Entry(Struct, frozen=True):
    """All that is known of one finished cell."""

    cell: str
    rows: tuple[Row, ...]
    measures: tuple[Measure, ...] = ()

    def __post_init__(self) -> None:
        if {row.cell for row in self.rows} != {self.cell}:
            raise ValueError(f"no rows, or rows of another cell than {self.cell}")


_decoder = msgspec.json.Decoder(Entry)


@dataclass(frozen=True)
class Journal:
    """An open journal, locked against other sweeps. `entries`: the finished cells by id, earlier runs' included."""

    path: Path
    file: int
    entries: dict[str, Entry]

    def append(self, entries: Sequence[Entry]) -> None:
        """Keep finished cells for good. Raises UserError if the disk does not take them."""
        _write(self.file, self.path, entries)
        self.entries.update((entry.cell, entry) for entry in entries)


@contextmanager
def journal(path: Path, header: Header, *, resume: bool) -> Iterator[Journal]:
    """Open a journal, new or to resume. Left behind with cells in it, it stays; one without any is deleted.

    Raises UserError if another sweep holds it, if it cannot be written, if it holds cells and `resume` is not asked
    for, or if it was written under another header: the message names the field.
    """
    file = _open_locked(path)
    try:
        kept = Journal(path, file, _restore(file, path, header, resume=resume))
        try:
            yield kept
        finally:
            if not kept.entries:
                path.unlink(missing_ok=True)
    finally:
        os.close(file)


def difference(before: Header, now: Header) -> str | None:
    """The first field in which two headers differ, in words."""
    old, new = dict(_flat(msgspec.to_builtins(before))), dict(_flat(msgspec.to_builtins(now)))
    for field in old | new:
        if old.get(field) != new.get(field):
            return f"{field} was {old.get(field, 'not set')}, is now {new.get(field, 'not set')}"
    return None


def _open_locked(path: Path) -> int:
    while True:
        try:
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


def _restore(file: int, path: Path, header: Header, *, resume: bool) -> dict[str, Entry]:
    whole, newline, _torn = _read(file).rpartition(b"\n")
    first, *lines = whole.split(b"\n")
    if not lines:
        os.ftruncate(file, 0)
        _write(file, path, [header])
        return {}
    if not resume:
        raise UserError(f"{path}: an unfinished sweep of {len(lines)} cells; go on with --resume, or delete it")
    if changed := difference(decode_header(first, str(path), Header), header):
        raise UserError(f"{path}: {changed}; undo that to resume, or delete the file to sweep anew")
    entries = {}
    for number, line in enumerate(lines, start=2):
        try:
            entry = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not a finished cell: {error}; delete the file to sweep anew") from None
        entries[entry.cell] = entry
    os.ftruncate(file, len(whole + newline))
    return entries


def _read(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as reader:
        return reader.read()


def _write(file: int, path: Path, lines: Sequence[Header | Entry]) -> None:
    left = memoryview(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    try:
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; mend that, then go on with --resume") from None


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield prefix + key, inner
