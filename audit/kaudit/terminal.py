"""The edge to the terminal: data to stdout, words to stderr, and every end of a command an exit code."""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import typer

from kaudit.errors import ProbeError, UserError


def data(lines: Iterable[str]) -> None:
    """To stdout. A reader that has seen enough and closes the pipe changes neither the rest of the run nor its end."""
    try:
        for line in lines:
            typer.echo(_printable(line))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def words(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(_printable(line), err=True)


_CONTROL = {code: "�" for code in (*range(32), 127, *range(128, 160)) if chr(code) != "\t"}


def _printable(line: str) -> str:
    """What engines said, and what strangers' tables hold, must not move the cursor or forge a line of a log."""
    return line.translate(_CONTROL)


# The base of typer's own usage errors; where it lives differs between typer with click inside and beside it.
_UsageError: Any = typer.BadParameter.__base__


def guarded(command: Callable[[], object]) -> int:
    """Runs a command; every way in which it can end is an exit code and at most one line a fault."""
    try:
        result = command()
        return result if isinstance(result, int) else 0
    except UserError as error:
        words(f"error: {fault}" for fault in error.faults)
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
