"""What a machine has no more of: the user can mend it, and no --python, --out or cell is to blame."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kaudit.errors import UserError

_MEND = {
    errno.EMFILE: "raise ulimit -n",
    errno.ENFILE: "raise fs.file-max",
    errno.EAGAIN: "raise ulimit -u, or the container's limit of processes",
    errno.ENOMEM: "free some memory",
}


def mend(error: OSError) -> str:
    """What to do where files, processes or memory ran out; empty where something else went wrong."""
    return _MEND.get(error.errno or 0, "")


def temporary_file() -> IO[bytes]:
    """Without a name. Raises UserError where none can be written, and OSError where `mend` knows what else ran out."""
    with _needed():
        return tempfile.TemporaryFile()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """It goes at the end of the block. Raises as temporary_file does."""
    with _needed():
        folder = tempfile.TemporaryDirectory(prefix="kaudit-", ignore_cleanup_errors=True)
    with folder as path:
        yield Path(path)


@contextmanager
def threads_needed() -> Iterator[None]:
    """Raises UserError where a thread that the block starts cannot be, for which Python has but a RuntimeError."""
    try:
        yield
    except RuntimeError:
        error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        raise UserError(f"no thread can be started: {error.strerror}; {mend(error)}") from None


@contextmanager
def _needed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if mend(error):
            raise
        what = f"no temporary file can be written: {error.strerror}"
        raise UserError(f"{what}; set TMPDIR to a folder with room") from None
