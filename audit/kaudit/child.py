"""One probe process: start it, talk to it, end it.

Messages travel over two pipes of their own. Whatever the process prints, from Python or from C, goes to an unnamed
file: the probe reads the engine's announcements back from it, and the sweep the last words of a process that died.
"""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fcntl import F_GETFL, F_SETFL, fcntl
from typing import IO

import msgspec

from kaudit.errors import UserError
from kaudit.wire import Batch, FromProbe

EXIT_LIMIT = 10.0
"""Seconds that a process which was asked to end, or has closed its pipe, gets before it is killed."""

_LOOK = 0.25
"""Seconds between looks whether the process lives: its own children may hold its pipe open after its death."""

_BROKEN = "wrote to the probe's own pipe"

_decoder: msgspec.json.Decoder[FromProbe] = msgspec.json.Decoder(FromProbe)


@dataclass
class Child:
    """A running probe. `served`: it was given a batch, so it is no fresh process any more."""

    process: subprocess.Popen[bytes]
    inbox: int
    outbox: int
    output: IO[bytes]
    received: bytes = b""
    served: bool = False


@dataclass(frozen=True)
class Died:
    """The process is gone. `how`: "SIGSEGV", "exit 3"; `words`: the last line it printed, empty if there is none."""

    how: str
    words: str


def probe_command(python: str, engine: str, device: str) -> tuple[str, ...]:
    """The command of the real probe; start() adds the pipes."""
    # -P: the folder that kaudit is called from must not shadow what the engine imports.
    return (python, "-P", "-m", "kaudit_probes", "--engine", engine, "--device", device)


def start(command: Sequence[str]) -> Child:
    """Start a probe in a session of its own. Raises UserError where its Python cannot be run."""
    its_inbox, inbox = os.pipe()
    outbox, its_outbox = os.pipe()
    output = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child)
    # Two streams share the file and the probe truncates it between batches: each write must go to its end.
    fcntl(output, F_SETFL, fcntl(output, F_GETFL) | os.O_APPEND)
    try:
        process = subprocess.Popen(
            [*command, "--in-fd", str(its_inbox), "--out-fd", str(its_outbox)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(its_inbox, its_outbox),
            start_new_session=True,
        )
    except OSError as error:
        os.close(inbox)
        os.close(outbox)
        output.close()
        raise UserError(f"--python: {command[0]}: {error.strerror}; name a Python that has the engine") from None
    finally:
        os.close(its_inbox)
        os.close(its_outbox)
    return Child(process, inbox, outbox, output)


def send(child: Child, batch: Batch) -> None:
    """Give the probe a batch. If it is dead already, the next receive() says so."""
    child.served = True
    with contextlib.suppress(BrokenPipeError):
        # A batch is smaller than a pipe's buffer and the probe is idle: one write takes it whole and does not wait.
        os.write(child.inbox, msgspec.json.encode(batch) + b"\n")


def receive(child: Child, deadline: float) -> FromProbe | Died | None:
    """The next message; Died, and the child is released; None if time.monotonic() passes the deadline before."""
    poll = select.poll()
    poll.register(child.outbox, select.POLLIN)
    while True:
        line, newline, rest = child.received.partition(b"\n")
        if newline:
            child.received = rest
            try:
                return _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return Died(_BROKEN, kill(child))
        dead = child.process.poll() is not None
        left = max(0.0, deadline - time.monotonic())
        if poll.poll(0 if dead else 1000 * min(left, _LOOK)):
            if chunk := os.read(child.outbox, 1 << 16):
                child.received += chunk
                continue
            return _bury(child)
        if dead:
            return _bury(child)
        if not left:
            return None


def stop(child: Child) -> None:
    """Let an idle probe end by itself, as it does when its pipe closes; kill it if it does not."""
    os.close(child.inbox)
    child.inbox = -1
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.process.wait(EXIT_LIMIT)
    kill(child)


def kill(child: Child) -> str:
    """End the process with all that it started, release it, and return the last line that it printed.

    A child that is released already is left alone: an interrupt may come between the two.
    """
    if child.output.closed:
        return ""
    # The probe leads its session, so the group is what it started; the group outlives a leader that is dead.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait()
    words = _last_words(child)
    with child.output:
        if child.inbox >= 0:
            os.close(child.inbox)
        os.close(child.outbox)
    return words


def _bury(child: Child) -> Died:
    try:
        how = _how(child.process.wait(EXIT_LIMIT))
    except subprocess.TimeoutExpired:
        how = "closed the probe's own pipe"
    return Died(how, kill(child))


def _how(status: int) -> str:
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"


def _last_words(child: Child) -> str:
    size = os.fstat(child.output.fileno()).st_size
    tail = os.pread(child.output.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
    lines = ["".join(filter(str.isprintable, line)).strip() for line in tail.splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")
