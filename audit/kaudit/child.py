"""One probe process: start it, talk to it, end it.

Messages travel over two pipes of their own. Whatever the process prints, from Python or from C, goes to an unnamed
file: the probe reads the engine's announcements back from it, and the sweep the last words of a process that died.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

import msgspec

from kaudit.errors import UserError
from kaudit.files import MOST_LINE
from kaudit.shortage import mend, temporary_file
from kaudit.wire import Batch, FromProbe

EXIT_LIMIT = 10.0
"""Seconds that a process which was asked to end, or has closed its pipe, gets before it is killed."""

_LOOK = 0.25
"""Seconds between looks whether the process lives: its own children may hold its pipe open after its death."""

MOST_PRINTED = 1 << 30
"""Bytes that a process may print in one batch; the probe empties the file after each."""

_PIPE = 1 << 20
"""Bytes that a pipe may hold, the most that Linux grants anyone: a batch of ids fits, so that sending never waits."""

_TAIL = 1 << 16
"""Bytes: a dump names up to 100 frames and then every extension module, some 12 KB with torch."""

_DUMP = re.compile(
    r"^Fatal Python error: (.*)\n(?:.*\n){1,4}?(.*\(most recent call first\):\n +.*"
    r"(?:\n(?: .*|\S.*\(most recent call first\):|\.\.\.)?)*+)(?:^Extension modules: .*\s*)?\Z",
    re.MULTILINE,
)
"""faulthandler's dump, with nothing behind it but frames, threads and modules: a process that goes on to print did not
die of it, as one that only shows what a worker of its printed."""

_FRAME = re.compile(r"^(?:Stack|Current thread .*) \(most recent call first\):\n +(.*)", re.MULTILINE)
"""That of the thread that died. Any may stand before it, and a hundred others in its place."""

_BROKEN = "wrote to the probe's own pipe"

_decoder: msgspec.json.Decoder[FromProbe] = msgspec.json.Decoder(FromProbe)


@dataclass
class Child:
    """A running probe. `served`: it was given a batch, so it is no fresh process any more.

    `lines`: messages received and not yet decoded; `torn`: the start of the next one.
    """

    process: subprocess.Popen[bytes]
    inbox: int
    outbox: int
    output: IO[bytes]
    outgoing: select.poll
    lines: deque[bytes] = field(default_factory=deque)
    torn: bytearray = field(default_factory=bytearray)
    served: bool = False


@dataclass(frozen=True)
class Died:
    """The process is gone. `how`: "SIGSEGV", "exit 3"; `words`: the last line it printed, empty if there is none."""

    how: str
    words: str


def probe_command(python: str, engine: str, device: str, numerics: bool = False, timing: float = 0) -> tuple[str, ...]:
    """The command of the real probe; start() adds the pipes. `numerics`: it checks results, too. `timing`: it times
    each cell, for at most so many seconds; 0: it does not."""
    # -P: the folder that kaudit is called from must not shadow what the engine imports.
    checks = (*(["--numerics"] if numerics else []), *(["--timing", str(timing)] if timing else []))
    return (python, "-P", "-m", "kaudit_probes", "--engine", engine, "--device", device, *checks)


def start(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> Child:
    """Start a probe in a session of its own. Raises UserError where its Python cannot be run, or nothing can."""
    with ExitStack() as ours, ExitStack() as its:
        try:
            its_inbox, inbox = _pipe(its, ours)
            outbox, its_outbox = _pipe(ours, its)
            output = ours.enter_context(temporary_file())
            # Two streams share the file and the probe truncates it between batches: each write must go to its end.
            fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
            process = subprocess.Popen(
                [*command, "--in-fd", str(its_inbox), "--out-fd", str(its_outbox)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(its_inbox, its_outbox),
                start_new_session=True,
            )
        except OSError as error:
            if more := mend(error):
                what = f"no probe can be started: {error.strerror}"
                raise UserError(f"{what}; {more}, or take fewer --jobs if there are several") from None
            raise UserError(f"--python: {command[0]}: {error.strerror}; name a Python that has the engine") from None
        ours.pop_all()  # they live as long as the child
    outgoing = select.poll()
    outgoing.register(outbox, select.POLLIN)
    return Child(process, inbox, outbox, output, outgoing)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Its two ends, each for one of the two to close."""
    ends = os.pipe()
    for side, end_of in zip((reader, writer), ends, strict=True):
        side.callback(os.close, end_of)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a user who has many pipes gets no larger ones
            fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _PIPE)
    return ends


def send(child: Child, batch: Batch) -> None:
    """Give the probe a batch. If it is dead already, the next receive() says so."""
    child.served = True
    with contextlib.suppress(BrokenPipeError):
        # A batch is smaller than the pipe and the probe is idle: one write takes it whole and does not wait.
        os.write(child.inbox, msgspec.json.encode(batch) + b"\n")


def receive(child: Child, deadline: float) -> FromProbe | Died | None:
    """The next message; Died, and the child is released; None if time.monotonic() passes the deadline before."""
    while not child.lines:
        dead = child.process.poll() is not None
        left = max(0.0, deadline - time.monotonic())
        if child.outgoing.poll(0 if dead else 1000 * min(left, _LOOK)):
            if not (chunk := os.read(child.outbox, _PIPE)):
                return _bury(child)
            _take(child, chunk)
            if len(child.torn) > MOST_LINE:
                return Died(_BROKEN, kill(child))
        elif dead:
            return _bury(child)
        elif not left:
            return None
        elif os.fstat(child.output.fileno()).st_size > MOST_PRINTED:
            return Died(f"printed more than {MOST_PRINTED >> 20} MiB", kill(child))
    try:
        return _decoder.decode(child.lines.popleft())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Died(_BROKEN, kill(child))


def _take(child: Child, chunk: bytes) -> None:
    *whole, rest = chunk.split(b"\n")
    if whole:
        child.lines.append(bytes(child.torn) + whole[0])
        child.lines.extend(whole[1:])
        child.torn = bytearray()
    child.torn += rest


def stop(child: Child) -> None:
    """Let an idle probe end by itself, as it does when its pipe closes; kill it if it does not."""
    os.close(child.inbox)
    child.inbox = -1
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.process.wait(EXIT_LIMIT)
    kill(child)


def end(child: Child) -> None:
    """End the process with all that it started. Another thread that is in receive() hears of it and releases it."""
    # The probe leads its session, so the group is what it started; the group outlives a leader that is dead.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)


def kill(child: Child) -> str:
    """End the process with all that it started, release it, and return the last line that it printed.

    A child that is released already is left alone: an interrupt may come between the two.
    """
    if child.output.closed:
        return ""
    end(child)
    child.process.wait()
    words = last_words(child.output)
    with child.output:
        if child.inbox >= 0:
            os.close(child.inbox)
        os.close(child.outbox)
    return words


def _bury(child: Child) -> Died:
    try:
        how = how_ended(child.process.wait(EXIT_LIMIT))
    except subprocess.TimeoutExpired:
        how = "closed the probe's own pipe"
    return Died(how, kill(child))


def how_ended(status: int) -> str:
    """A process's exit status in words: "exit 3", "SIGSEGV"."""
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"


def last_words(output: IO[bytes]) -> str:
    """The last line in what a process printed, empty if there is none; of faulthandler's dump, where that ends it."""
    size = os.fstat(output.fileno()).st_size
    tail = os.pread(output.fileno(), _TAIL, max(0, size - _TAIL)).decode(errors="replace")
    if dump := _DUMP.search(tail):
        how, threads = dump.groups()
        tail = f"{how}: {frame[1]}" if (frame := _FRAME.search(threads)) else how
    lines = ["".join(filter(str.isprintable, line)).strip() for line in tail.splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")
