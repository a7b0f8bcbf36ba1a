"""The edge to the terminal: data to stdout, words to stderr, and every end of a command an exit code."""

import codecs
import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from kaudit.atomic import beside, replacing
from kaudit.errors import ProbeError, UserError
from kaudit.shortage import mend


def data(lines: Iterable[str]) -> None:
    """To stdout. A reader that has seen enough and closes the pipe changes neither the rest of the run nor its end.

    Raises UserError where stdout takes no more for another reason, a full disk for one.
    """
    try:
        for line in lines:
            print(printable(line))
        sys.stdout.flush()
    except OSError as error:
        _forget_stdout()
        if not isinstance(error, BrokenPipeError):
            raise UserError(f"stdout: {error.strerror}; write to where there is room") from None


def _forget_stdout() -> None:
    """What is still buffered must not fail again as Python ends."""
    with suppress(io.UnsupportedOperation):  # no file, so nothing that is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def save(path: Path, lines: Iterable[str]) -> None:
    """To a file, whole or not at all: others may be reading it. Raises UserError where it cannot be written."""
    save_bytes(path, _encoded(lines))


def save_bytes(path: Path, text: bytes) -> None:
    """As save."""
    with _writable(path):
        if path.exists() and not path.is_file():
            path.write_bytes(text)  # a pipe or a device is there to be written to, not to be replaced
            return
        with replacing(path) as file:
            file.write(text)


def check_apart(path: Path, *read: Path) -> None:
    """A file to write is none of those that are `read`. Raises UserError."""
    with _writable(path):
        same = path.is_file() and any(other.exists() and path.samefile(other) for other in read)
    if same:
        raise UserError(f"{path}: is read here, and would be written over; name another file to write")


def check_output(path: Path | None, *read: Path) -> None:
    """What a glance can tell of a file to write must not end an hour's work. Raises UserError."""
    if path is None:
        return
    check_apart(path, *read)
    with _writable(path):
        folder, special = path.is_dir(), path.exists() and not path.is_file()
    if folder:
        raise UserError(f"{path}: Is a directory; name a file that can be written")
    if special:
        return
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {path.parent} is not a folder that can be written; name a file that can be written")
    longest = beside(path)
    try:
        longest.lstat()
    except OSError as error:  # most file systems take names of 255 bytes, some of 143
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"{longest}: {error.strerror}; choose a shorter name") from None


def append(path: Path, lines: Iterable[str]) -> None:
    """To the end of a file. Raises UserError where it cannot be written."""
    text = _encoded(lines)
    with _writable(path), path.open("ab") as file:
        file.write(text)


def _encoded(lines: Iterable[str]) -> bytes:
    # What is no character (half of a surrogate pair) can stand in a file's name, not in a text.
    return "".join(f"{printable(line)}\n" for line in lines).encode("utf-8", "replace")


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {mend(error) or 'name a file that can be written'}") from None


def words(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line), file=sys.stderr)


_PLAIN = {"→": "->", "×": "x", "·": "-", "…": "..."}
"""For terminals that lack our signs. A `?` would be a sign, too: in a story it stands before a path."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


class _Heedless(io.FileIO):
    """Takes what nobody reads any more, or what a full disk does not: words are no reason to end."""

    def write(self, text: Any, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)


def print_anywhere() -> None:
    """What a terminal's encoding cannot say is said in ASCII. That, words that go nowhere, and streams that we were
    started without, are no reason to end."""
    codecs.register_error("kaudit", _plain)
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # else the number would become that of a table, or of a pipe to the probe
            os.open(os.devnull, os.O_RDWR)
    # Python has None for a stream that it was started without, and print() takes None for stdout.
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is sys.__stderr__:
        encoding = sys.stderr.encoding if sys.stderr else "utf-8"
        heedless = io.BufferedWriter(_Heedless(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(heedless, encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kaudit")


_CONTROL = {code: "�" for code in (*range(32), 127, *range(128, 160)) if chr(code) != "\t"}


def printable(line: str) -> str:
    """What engines said, and what strangers' tables hold, must not move the cursor or forge a line of a log."""
    return line.translate(_CONTROL)


def _shown(fault: str) -> str:
    """A line that people can read, however long what it quotes of a stranger's file."""
    return fault if len(fault) <= 1000 else f"{fault[:700]} ... {fault[-250:]}"


COMMANDS = "docs/commands.md"
"""The page of an error that names none."""

# The base of typer's own usage errors; where it lives differs between typer with click inside and beside it.
_UsageError: Any = typer.BadParameter.__base__


def _help_of(error: Any) -> str:
    return f"{error.ctx.command_path if error.ctx else 'kaudit'} --help"


def guarded(command: Callable[[], object]) -> int:
    """Runs a command; every way in which it can end is an exit code and at most one line a fault."""
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except UserError as error:
        *faults, last = error.faults
        words(f"error: {_shown(fault)}" for fault in faults)
        words([f"error: {_shown(last)} ({error.page or COMMANDS})"])
        return 2
    except _UsageError as error:
        words([f"error: {_shown(error.format_message().rstrip('.'))}; see {_help_of(error)} ({COMMANDS})"])
        return 2
    except (KeyboardInterrupt, typer.Abort):
        words(["interrupted"])
        return 130
    except ProbeError as error:
        words([f"bug: {error}; please report it"])
        return 3
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _forget_stdout()  # typer prints its help itself
            words([f"error: {error.filename or 'stdout'}: {error.strerror}; make room ({COMMANDS})"])
            return 2
        if isinstance(error, OSError) and (more := mend(error)):
            words([f"error: {error.strerror}; {more} ({COMMANDS})"])
            return 2
        words([f"bug: {_named(error)}; please report it with {_reported(error)}"])
        return 3


def _named(error: Exception) -> str:
    """`KeyError: 'q'`; its type alone where it cannot say more."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _reported(error: Exception) -> str:
    """Where its traceback is: in a file, or, where none can be written, in the lines above."""
    lines = traceback.format_exception(error)
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="kaudit-", suffix=".txt", delete=False) as report:
            report.write("".join(lines).encode(errors="replace"))
        return report.name
    except Exception:
        words(line for entry in lines for line in entry.splitlines())
        return "the lines above"
