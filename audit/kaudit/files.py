"""Files that a user names, to be read: none that is waited for or has no end, and no line that is never one of ours."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MOST_LINE = 256 << 20
"""Bytes of one line: a row of a table, of which the longest real one has 20 KB, or a message from a probe, of which the
answer to a full batch of whole decoder layers has some tens of MB. One bound, so that what a sweep took it can read."""

_OPEN = (Path("/dev/fd"), Path("/proc/self/fd"))
"""Where shells put the pipe of `<(git show main:table.jsonl)`, with a writer at its other end."""


def check_regular(path: Path) -> None:
    """Raises OSError where it is a folder, a pipe or a device: to open a pipe would wait for somebody who writes."""
    mode = path.stat().st_mode
    if stat.S_ISFIFO(mode) and path.parent in _OPEN:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a pipe or a device, no regular file")


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """A regular file. Raises OSError where it is none or cannot be read."""
    check_regular(path)
    with path.open("rb") as file:
        yield file


def lines(file: IO[bytes]) -> Iterator[bytes]:
    """With their ends. Raises OSError where one is longer than MOST_LINE."""
    number = 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            raise OSError(errno.EFBIG, f"line {number} is longer than {MOST_LINE >> 20} MiB")
        yield line
