"""The edge to the terminal: data to stdout, words to stderr, and every end of a command an exit code."""

import codecs
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from kaudit.atomic import replacing
from kaudit.errors import ProbeError, UserError


def data(lines: Iterable[str]) -> None:
    """To stdout. A reader that has seen enough and closes the pipe changes neither the rest of the run nor its end.

    Raises UserError where stdout takes no more for another reason, a full disk for one.
    """
    try:
        for line in lines:
            print(printable(line))
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered must not fail again as Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UserError(f"stdout: {error.strerror}; write to where there is room") from None


def save(path: Path, lines: Iterable[str]) -> None:
    """To a file, whole or not at all: others may be reading it. Raises UserError where it cannot be written."""
    text = _encoded(lines)
    with _writable(path):
        if path.exists() and not path.is_file():
            path.write_bytes(text)  # a pipe or a device is there to be written to, not to be replaced
            return
        with replacing(path) as file:
            file.write(text)


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
        raise UserError(f"{path}: {error.strerror}; name a file that can be written") from None


def words(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line), file=sys.stderr)


_PLAIN = {"→": "->", "×": "x", "·": "-", "…": "..."}
"""For terminals that lack our signs. A `?` would be a sign, too: in a story it stands before a path."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def print_anywhere() -> None:
    """What a terminal's encoding cannot say is said in ASCII, and is no reason to end."""
    codecs.register_error("kaudit", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kaudit")


_CONTROL = {code: "�" for code in (*range(32), 127, *range(128, 160)) if chr(code) != "\t"}


def printable(line: str) -> str:
    """What engines said, and what strangers' tables hold, must not move the cursor or forge a line of a log."""
    return line.translate(_CONTROL)


COMMANDS = "docs/commands.md"
"""The page of an error that names none."""

# The base of typer's own usage errors; where it lives differs between typer with click inside and beside it.
_UsageError: Any = typer.BadParameter.__base__


def guarded(command: Callable[[], object]) -> int:
    """Runs a command; every way in which it can end is an exit code and at most one line a fault."""
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except UserError as error:
        *faults, last = error.faults
        words(f"error: {fault}" for fault in (*faults, f"{last} ({error.page or COMMANDS})"))
        return 2
    except _UsageError as error:
        words([f"error: {error.format_message().rstrip('.')}; see kaudit --help"])
        return 2
    except (KeyboardInterrupt, typer.Abort):
        words(["interrupted"])
        return 130
    except ProbeError as error:
        words([f"bug: {error}; please report it"])
        return 3
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="kaudit-", suffix=".txt", delete=False) as report:
            traceback.print_exc(file=report)
        words([f"bug: {type(error).__name__}: {error}; please report it with {report.name}"])
        return 3
