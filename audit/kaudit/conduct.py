"""Gives cells to a probe and each its outcome, whatever becomes of the process.

Cells run in company first. One that was open when the process died, that raised an exception, whose capture was
unhealthy, or that found no memory left, runs again alone in a fresh process, after all others; what happens there is
its outcome. So a death that was not the cell's doing, a `kill -9` from outside for one, changes no table, nor does what
another cell left behind. A hang has had its whole limit to end: it is not tried again, unless others were at work on
its GPU. What the engine says it refuses is believed in company, and so is an exception once enough like it came alone
(Beliefs).

Where probes share a GPU, waiting for it is what costs them: each wait lets the others' work go first (0.2 ms of an H200
with four probes, where a small cell takes 0.3). There a batch is asked for without a wait for each cell, and where the
process dies or does not go on, whole again with one.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from kaudit.beliefs import words_of_crash
from kaudit.exchange import Expired, Lost
from kaudit.host import Host
from kaudit.journal import Entry
from kaudit.observation import OUT_OF_MEMORY, WHOLE_CELL, Crashed, Hung, Outcome, Row, Unseen
from kaudit.wire import Batch, Measure, Observed

_TRIES = 2
"""How often cells are sent if the process dies with none of them open."""


@dataclass(frozen=True)
class Again:
    """A cell that is to run alone. `raised`: what it came to in company, where that was an exception."""

    cell: str
    raised: Entry | None = None


def in_company(host: Host, cells: tuple[str, ...], again: list[Again], *, fresh: bool) -> Iterator[tuple[Entry, ...]]:
    """The cells of a batch as they are finished; those that have to run alone are added to `again`."""
    tries, blocking = _TRIES, not host.shares_gpu
    while cells:
        match host.ask(Batch(cells, blocking), fresh=fresh):
            case Observed() as observed:
                again += map(Again, observed.redo)
                finished: list[Entry] = []
                for entry in _entries(observed):
                    if _starved(entry):
                        again.append(Again(entry.cell))
                    elif words_of_crash(entry) and not fresh:
                        again.append(Again(entry.cell, entry))
                    else:
                        finished.append(entry)
                yield tuple(finished)
                return
            case (Lost() | Expired()) as trouble if not blocking:
                host.progress.note(f"{_told(trouble)}; its {len(cells)} cells run again, with a wait after each")
                blocking = True
            case Lost(None, how, words):
                host.progress.note(f"the probe died with no cell open ({how}): {words or 'it printed nothing'}")
                tries -= 1
                if not tries:
                    again += map(Again, cells)
                    return
            case Lost(str(cell), how):
                host.progress.note(f"{cell}: {how}; it runs again alone")
                again.append(Again(cell))
                cells = _without(cells, cell)
            case Expired(None, seconds):
                host.progress.note(f"a capture did not end within {seconds:g} s: {len(cells)} cells run alone")
                again += map(Again, cells)
                return
            case Expired(str(cell), seconds):
                host.progress.note(f"{cell}: hung, killed after {seconds:g} s")
                if host.shares_gpu:
                    again.append(Again(cell))
                else:
                    yield (_whole(cell, Hung(seconds)),)
                cells = _without(cells, cell)


def alone(host: Host, cell: str) -> Entry:
    """A cell in a fresh process, once and for all."""
    how = ""
    for _ in range(_TRIES):
        match host.ask(Batch((cell,)), fresh=True):
            case Observed() as observed if observed.redo:
                return _whole(cell, Unseen(observed.redo[cell]))
            case Observed() as observed:
                (entry,) = _entries(observed)
                return entry
            case Lost(None, how):
                pass
            case Lost(_, how):
                return _whole(cell, Crashed(how))
            case Expired(None, seconds):
                return _whole(cell, Unseen(f"the capture did not end within {seconds:g} s"))
            case Expired(_, seconds):
                return _whole(cell, Hung(seconds))
    return _whole(cell, Unseen(f"the probe died with no cell open: {how}"))


def _told(trouble: Lost | Expired) -> str:
    match trouble:
        case Lost(_, how, words):
            return f"a batch ended the probe ({how}): {words or 'it printed nothing'}"
        case Expired(_, seconds):
            return f"a batch did not go on within {seconds:g} s"


def _starved(entry: Entry) -> bool:
    return any(row.outcome == OUT_OF_MEMORY for row in entry.rows)


def _entries(observed: Observed) -> tuple[Entry, ...]:
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in observed.rows:
        rows[row.cell].append(row)
    measures: defaultdict[str, list[Measure]] = defaultdict(list)
    for measure in observed.measures:
        measures[measure.cell].append(measure)
    return tuple(Entry(cell, tuple(of), tuple(measures[cell])) for cell, of in rows.items())


def _whole(cell: str, outcome: Outcome) -> Entry:
    return Entry(cell, (Row(cell, WHOLE_CELL, outcome),))


def _without(cells: tuple[str, ...], cell: str) -> tuple[str, ...]:
    return tuple(other for other in cells if other != cell)
