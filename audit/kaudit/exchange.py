"""One batch given to one probe, and what came of it."""

import time
from collections import Counter
from dataclasses import dataclass

from kaudit.child import Child, Died, kill, receive, send
from kaudit.errors import ProbeError, UserError, told_in
from kaudit.progress import Progress
from kaudit.wire import Batch, Closed, Failed, Hello, Note, Observed, Opened, Poisoned

CAPTURE_LIMIT = 0.5
"""Seconds per cell of the batch, on top of one cell's limit, in which the probe may work with no cell open: a hundred
times what reading a small cell's kernels takes, and a stalled capture of 512 cells is found in minutes, not in an hour.
"""

MOST_MESSAGES = 100
"""Messages per cell of the batch, on top of as many for the batch itself. A cell is opened and closed three times, and
once more for each of --numerics and --timing."""


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


def exchange(child: Child, batch: Batch, cell_limit: float, progress: Progress) -> Observed | Lost | Expired:
    """Have a batch observed; each cell has `cell_limit` seconds. Unless the answer is Observed, the child is released.

    Raises ProbeError if the probe speaks of cells it was not asked for, leaves one out, or does not stop talking;
    UserError if the engine's adapter is at fault, or the profiler, where the batch is empty.
    """
    cells = batch.cells
    send(child, batch)
    own = frozenset(cells)
    most = MOST_MESSAGES * (1 + len(cells))
    quiet_limit = cell_limit + CAPTURE_LIMIT * len(cells)
    opened: str | None = None
    during = ""
    deadline = time.monotonic() + quiet_limit
    for _ in range(most):
        match receive(child, deadline):
            case Opened(cell, doing):
                if cell not in own:
                    raise ProbeError(f"the probe opened {cell}, which is not in its batch")
                opened, deadline = cell, time.monotonic() + cell_limit
                during = f" while {doing}" if doing else ""
                progress.opened(cell)
            case Closed():
                opened, deadline = None, time.monotonic() + quiet_limit
            case Note(text):
                progress.note(text)
            case Observed() as observed:
                _check(observed, own)
                return observed
            case Poisoned(cell, how):
                if cell not in own:
                    raise ProbeError(f"the probe says {cell} broke it, which is not in its batch")
                return Lost(cell, how + during, kill(child))
            case Died(how, words):
                return Lost(opened, how + during if opened else how, words)
            case None:
                kill(child)
                return Expired(opened, cell_limit if opened else quiet_limit)
            case Failed(fault):
                with told_in("docs/engines.md" if cells else "docs/capture.md"):
                    raise UserError(f"{fault}, then go on with --resume")
            case Hello():
                raise ProbeError("the probe answered a batch with Hello")
    raise ProbeError(f"the probe sent {most} messages and no answer to a batch of {len(cells)} cells")


def _check(observed: Observed, cells: frozenset[str]) -> None:
    keys = Counter(row.key for row in observed.rows)
    if len(keys) < len(observed.rows):
        twice, _ = keys.most_common(1)[0]
        raise ProbeError(f"the probe gave a row twice: {' '.join(twice)}")
    seen = {row.cell for row in observed.rows}
    if both := seen & observed.redo.keys():
        raise ProbeError(f"the probe both saw and did not see {min(both)}")
    answered = seen | observed.redo.keys()
    if missing := cells - answered:
        raise ProbeError(f"the probe gave no row of {min(missing)}")
    if foreign := (answered | {measure.cell for measure in observed.measures}) - cells:
        raise ProbeError(f"the probe gave rows of {min(foreign)}, which is not in its batch")
