"""Feeds cells to the probe and gives each its outcome, whatever becomes of the process.

Cells run in company first. One that was open when the process died, or whose capture was unhealthy, runs again alone in
a fresh process, after all others; only what happens there is its outcome. So a death that was not the cell's doing, a
`kill -9` from outside for one, changes no table. A hang has had its whole limit to end: it is not tried again.
"""

from collections.abc import Iterable, Iterator, Sequence

from kaudit.cell import Cell
from kaudit.exchange import Expired, Lost
from kaudit.host import Host
from kaudit.journal import Entry
from kaudit.observation import WHOLE_CELL, Crashed, Hung, Outcome, Row, Unseen
from kaudit.plan import batches
from kaudit.wire import Observed

_TRIES = 2
"""How often cells are sent if the process dies with none of them open."""


def conduct(host: Host, cells: Sequence[Cell]) -> Iterator[tuple[Entry, ...]]:
    """Every cell once, in groups as they are finished. Raises what Host.ask raises."""
    again: list[str] = []
    for batch in batches(cells):
        yield from _in_company(host, tuple(cell.id for cell in batch), again)
    for cell in again:
        yield (_alone(host, cell),)


def _in_company(host: Host, cells: tuple[str, ...], again: list[str]) -> Iterator[tuple[Entry, ...]]:
    """Cells that have to run alone are added to `again`."""
    tries = _TRIES
    while cells:
        match host.ask(cells):
            case Observed() as observed:
                again += observed.redo
                yield _entries(observed)
                return
            case Lost(None, how, words):
                host.progress.note(f"the probe died with no cell open ({how}): {words or 'it printed nothing'}")
                tries -= 1
                if not tries:
                    again += cells
                    return
            case Lost(str(cell), how):
                host.progress.note(f"{cell}: {how}; it runs again alone")
                again.append(cell)
                cells = _without(cells, cell)
            case Expired(None, seconds):
                host.progress.note(f"a capture did not end within {seconds:g} s: {len(cells)} cells run alone")
                again += cells
                return
            case Expired(str(cell), seconds):
                host.progress.note(f"{cell}: hung, killed after {seconds:g} s")
                yield (_whole(cell, Hung(seconds)),)
                cells = _without(cells, cell)


def _alone(host: Host, cell: str) -> Entry:
    how = ""
    for _ in range(_TRIES):
        match host.ask((cell,), fresh=True):
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


def _entries(observed: Observed) -> tuple[Entry, ...]:
    cells = dict.fromkeys(row.cell for row in observed.rows)
    return tuple(
        Entry(cell, tuple(_of(cell, observed.rows)), tuple(m for m in observed.measures if m.cell == cell))
        for cell in cells
    )


def _of(cell: str, rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.cell == cell)


def _whole(cell: str, outcome: Outcome) -> Entry:
    return Entry(cell, (Row(cell, WHOLE_CELL, outcome),))


def _without(cells: tuple[str, ...], cell: str) -> tuple[str, ...]:
    return tuple(other for other in cells if other != cell)
