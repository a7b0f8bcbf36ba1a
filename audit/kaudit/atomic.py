"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` at the end of the block, or vanishes if it raises. Raises OSError."""
    new = beside(path)
    try:
        with new.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def beside(path: Path) -> Path:
    """Where that file is written until it is whole."""
    # Always the same name: what a writer that was killed -9 left behind, the next one takes away.
    return path.with_name(f".{path.name}.tmp")
