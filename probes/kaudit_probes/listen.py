"""Hears what an engine says while one cell runs: log records, warnings, and what C code writes to stdout and stderr."""

import ctypes
import fcntl
import logging
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from kaudit_probes.engines import Heard

# What a cell may say and be heard: a chatty cell must not fill memory or the table. Beyond it the end counts.
_MOST_OUTPUT = 64 * 1024

_libc = ctypes.CDLL(None)


class Listener:
    """Collects over every `with listener.listening()` of one cell.

    Log records count from INFO on: what an engine says below that is not said to anyone who runs it.
    """

    def __init__(self) -> None:
        self._records: list[logging.LogRecord] = []
        self._warnings: list[str] = []
        self._output: list[str] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        handler = _Keep(self._records)
        root = logging.getLogger()
        _flush()
        start = _size()
        try:
            with _restoring(), warnings.catch_warnings(record=True) as caught, at_info():
                warnings.simplefilter("always")
                root.addHandler(handler)
                try:
                    yield
                finally:
                    root.removeHandler(handler)
                    self._warnings.extend(str(warning.message) for warning in caught)
        finally:
            self._output.append(_output_since(start))

    def heard(self) -> Heard:
        return Heard(tuple(self._records), tuple(self._warnings), "".join(self._output)[-_MOST_OUTPUT:])


@contextmanager
def _restoring() -> Iterator[None]:
    """Leaves stdout and stderr as they were, descriptors and Python's streams: what a cell closes, or puts in their
    place, must not swallow the next one's words, nor be raised at it."""
    streams, copies = (sys.stdout, sys.stderr), (_copy_of(1), _copy_of(2))
    try:
        yield
    finally:
        for descriptor, copy in enumerate(copies, start=1):
            if copy is not None:
                os.dup2(copy, descriptor)
                os.close(copy)
        _flush()  # what stands in their place may hold words still
        sys.stdout, sys.stderr = (_writable(stream, number) for number, stream in enumerate(streams, start=1))


def _copy_of(descriptor: int) -> int | None:
    try:
        return os.dup(descriptor)
    except OSError:  # run by hand, with it closed
        return None


def _writable(stream: TextIO, descriptor: int) -> TextIO:
    """The stream; where it was closed or its buffer detached, another to the same place, if there is one."""
    with suppress(ValueError):  # so a detached one answers
        if not getattr(stream, "closed", False):
            return stream
    with suppress(OSError):
        return open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False)
    return stream


@contextmanager
def at_info() -> Iterator[None]:
    """The root logger lets INFO through. To change its level clears a cache in every logger: 0.1 ms, so a batch of
    cells does it once, around all of its listening."""
    root = logging.getLogger()
    level = root.level
    if level <= logging.INFO:
        yield
        return
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)


class _Keep(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.INFO)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        try:
            record.getMessage()
        except Exception:
            self.handleError(record)  # as every handler does where the arguments do not fit the text
        else:
            self._records.append(record)


def forget_output() -> None:
    """Empty the file that stdout and stderr go to, so that a chatty engine does not fill the disk."""
    _flush()
    if _is_own_file():
        os.ftruncate(1, 0)


def _output_since(start: int) -> str:
    _flush()
    if not _is_own_file():
        return ""
    end = _size()
    return os.pread(1, _MOST_OUTPUT, max(start, end - _MOST_OUTPUT)).decode(errors="replace")


def _is_own_file() -> bool:
    """The sweep gives its probe one regular file for stdout and stderr, to write and read. Run by hand, they may be a
    terminal, or a file that a shell opened for writing only and that is not ours to empty."""
    try:
        readable = fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        return readable and os.path.sameopenfile(1, 2) and stat.S_ISREG(os.fstat(1).st_mode)
    except OSError:  # run by hand, with one of them closed
        return False


def _size() -> int:
    """Bytes in the file that stdout goes to; 0 where it is closed."""
    try:
        return os.fstat(1).st_size
    except OSError:
        return 0


def _flush() -> None:
    for name in ("stdout", "stderr"):
        with suppress(Exception):  # a cell may have closed it, or put anything in its place
            getattr(sys, name).flush()
    _libc.fflush(None)
