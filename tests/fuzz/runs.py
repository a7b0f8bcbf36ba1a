"""Commands as a user runs them, in this process for speed: each must end as documented, soon, and in little memory."""

import io
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from kaudit.cli import app
from kaudit.terminal import guarded

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
TIMES = 20
"""As many inputs by night as in CI."""

MOST_SECONDS = 10.0
"""Of CPU time, so that a busy machine is not to blame. Of what a stranger's file takes, most is under 0.1."""

MOST_BYTES = 2 << 30
"""Address space beyond what is in use: pandas and pyarrow map much that they never touch."""


def fuzzed(examples: int) -> Callable[[Any], Any]:
    """So many inputs in CI, the same ones each time; by night more, and others each time."""
    return settings(
        max_examples=examples * TIMES if NIGHTLY else examples,
        derandomize=not NIGHTLY,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    words: str


def kaudit(*arguments: object) -> Ended:
    """Run a command. It must pass, fail a gate, or say line by line what the user is to mend."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), limited():
        code = guarded(lambda: app([str(argument) for argument in arguments], standalone_mode=False))
    ended = Ended(code, out.getvalue(), err.getvalue())
    assert code in (0, 1, 2), ended.words
    errors = [line for line in ended.words.split("\n") if line.startswith("error: ")]
    assert bool(errors) == (code == 2), ended.words
    assert max(map(len, errors), default=0) < 2000, "an error is a line to read"
    for text in (ended.out, ended.words):
        assert not {sign for sign in text if sign < " " or "\x7f" <= sign < "\xa0"} - {"\n", "\t"}, repr(text[:500])
    return ended


@contextmanager
def limited() -> Iterator[None]:
    """What takes too long raises TimeoutError in it, what takes too much MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def over(*_: object) -> None:
        raise TimeoutError(f"took more than {MOST_SECONDS:g} s")

    kept = signal.signal(signal.SIGPROF, over)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, kept)
