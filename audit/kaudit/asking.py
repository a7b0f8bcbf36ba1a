"""Another Python is asked: a module of the probe runs there, and what it prints is the answer."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from threading import Event
from typing import IO, TypeVar

import msgspec
from msgspec import Struct

from kaudit.child import MOST_PRINTED, how_ended, last_words
from kaudit.errors import UserError
from kaudit.shortage import mend, temporary_file

LIMIT = 60.0
"""Seconds: torch, a driver that has to wake its GPUs, or a listing that imports no engine, from a cold network disk."""

MOST_ANSWER = 1 << 20
"""Bytes of an answer. The longest, the reference engine's catalogue for a cell, has 16 KB."""

_LOOK = 0.25
"""Seconds between looks whether the process lives: its own children may hold its pipe open after its death."""

_CHUNK = 1 << 16

_Answer = TypeVar("_Answer")


class Printed(Struct, frozen=True):
    """`text`: what it printed. `trouble`: why that is not all, as "SIGSEGV"; empty where it ended as it should.

    `words`: the last line that it said on stderr.
    """

    text: bytes
    trouble: str
    words: str

    def __str__(self) -> str:
        """How it ended, for people."""
        words = self.words or ("" if self.text else "it printed nothing")
        return ": ".join(filter(None, (self.trouble or "exit 0", words)))

    @property
    def fault(self) -> str:
        """Why it is no answer."""
        return str(self) if self.trouble or not self.text else "it printed something else"


def unanswered(python: str, what: str, fault: str, do: str = "") -> UserError:
    """`what` it cannot do, and what the user can do, in words."""
    return UserError(f"--python {python}: cannot {what}: {fault}; {do or 'name a Python that has kaudit'}")


def ask(
    python: str, what: str, module: str, *arguments: str, limit: float = LIMIT, given_up: Event | None = None
) -> Printed:
    """Whatever it does, it ends within `limit` seconds, with all that it started; soon after `given_up` is set, too.

    Raises UserError where that Python cannot be run, or nothing can.
    """
    with ExitStack() as stack:
        try:
            said = stack.enter_context(_room())
            process = subprocess.Popen(
                # -P: the folder that kaudit is called from must not shadow what the module imports.
                [python, "-P", "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            raise unanswered(python, what, error.strerror or str(error), mend(error)) from None
        with process:
            try:
                text, trouble = _read(process, said, limit, given_up or Event())
            finally:
                # It leads its session, so the group is what it started; the group outlives a leader that is dead.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        return Printed(text, trouble, last_words(said))


def _room() -> IO[bytes]:
    """A file for what it says; in memory where no folder takes one, for a doctor has to get as far as to say that."""
    try:
        return temporary_file()
    except UserError:
        if sys.platform != "linux":
            raise
        return os.fdopen(os.memfd_create("said"), "w+b")


def _read(process: subprocess.Popen[bytes], said: IO[bytes], limit: float, given_up: Event) -> tuple[bytes, str]:
    """What it prints until its end, and why that is not all."""
    assert process.stdout is not None
    text, pipe, poll = bytearray(), process.stdout.fileno(), select.poll()
    poll.register(pipe, select.POLLIN)
    closed = False
    deadline = time.monotonic() + limit
    while (left := deadline - time.monotonic()) > 0 and not given_up.is_set():
        dead = process.poll() is not None
        if closed and not dead:
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(left, _LOOK))
        elif not closed and poll.poll(0 if dead else 1000 * min(left, _LOOK)):
            chunk = os.read(pipe, _CHUNK)
            text += chunk
            closed = not chunk
        elif dead:
            return bytes(text), how_ended(process.returncode) if process.returncode else ""
        if len(text) > MOST_ANSWER:
            return bytes(text), f"printed more than {MOST_ANSWER >> 20} MiB"
        if os.fstat(said.fileno()).st_size > MOST_PRINTED:
            return bytes(text), f"printed more than {MOST_PRINTED >> 20} MiB"
    return bytes(text), f"no end after {limit:g} s"


def answers(python: str, what: str, kind: type[_Answer], module: str, *arguments: str) -> list[_Answer]:
    """What a module of the probe prints, one `kind` a line, one at least. `what` it is asked to do, in words.

    Raises UserError where that Python does not answer.
    """
    printed = ask(python, what, module, *arguments)
    if printed.trouble or not printed.text:
        raise unanswered(python, what, printed.fault)
    try:
        return [msgspec.json.decode(line, type=kind) for line in printed.text.splitlines()]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise unanswered(python, what, printed.fault) from None
