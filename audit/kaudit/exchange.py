"""One batch given to one probe, and what came of it."""

import time
from dataclasses import dataclass

from kaudit.child import Child, Died, kill, receive, send
from kaudit.errors import ProbeError
from kaudit.progress import Progress
from kaudit.wire import Batch, Closed, Failed, Hello, Note, Observed, Opened, Poisoned

CAPTURE_LIMIT = 5.0
"""Seconds per cell of the batch, on top of one cell's limit, in which the probe may work with no cell open."""


@dataclass(frozen=True)
class Lost:
    """The process is gone, with this cell open or with none."""

    cell: str | None
    how: str
    words: str = ""


@dataclass(frozen=True)
class Expired:
    """The limit of `seconds` ran out, with this cell open or with none, and the process was killed."""

    cell: str | None
    seconds: float


def exchange(child: Child, cells: tuple[str, ...], cell_limit: float, progress: Progress) -> Observed | Lost | Expired:
    """Have a batch observed; each cell has `cell_limit` seconds. Unless the answer is Observed, the child is released.

    Raises ProbeError if the probe speaks of cells it was not asked for, or leaves one out.
    """
    send(child, Batch(cells))
    quiet_limit = cell_limit + CAPTURE_LIMIT * len(cells)
    opened: str | None = None
    deadline = time.monotonic() + quiet_limit
    while True:
        match receive(child, deadline):
            case Opened(cell):
                if cell not in cells:
                    raise ProbeError(f"the probe opened {cell}, which is not in its batch")
                opened, deadline = cell, time.monotonic() + cell_limit
                progress.opened(cell)
            case Closed():
                opened, deadline = None, time.monotonic() + quiet_limit
            case Note(text):
                progress.note(text)
            case Observed() as observed:
                _check(observed, cells)
                return observed
            case Poisoned(cell, how):
                if cell not in cells:
                    raise ProbeError(f"the probe says {cell} broke it, which is not in its batch")
                return Lost(cell, how, kill(child))
            case Died(how, words):
                return Lost(opened, how, words)
            case None:
                kill(child)
                return Expired(opened, cell_limit if opened else quiet_limit)
            case Hello() | Failed() as message:
                raise ProbeError(f"the probe answered a batch with {type(message).__name__}")


def _check(observed: Observed, cells: tuple[str, ...]) -> None:
    keys = [row.key for row in observed.rows]
    if len(set(keys)) != len(keys):
        raise ProbeError(f"the probe gave a row twice: {max(keys, key=keys.count)}")
    seen = {row.cell for row in observed.rows}
    if both := seen & observed.redo.keys():
        raise ProbeError(f"the probe both saw and did not see {min(both)}")
    answered = seen | observed.redo.keys()
    if missing := set(cells) - answered:
        raise ProbeError(f"the probe gave no row of {min(missing)}")
    if foreign := (answered | {measure.cell for measure in observed.measures}) - set(cells):
        raise ProbeError(f"the probe gave rows of {min(foreign)}, which is not in its batch")
