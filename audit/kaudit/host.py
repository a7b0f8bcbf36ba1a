"""The seat of the probe: one process at a time, started when needed and replaced when it is gone."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kaudit.child import Child, Died, kill, receive, start, stop
from kaudit.errors import ProbeError, UserError, told_in
from kaudit.exchange import Expired, Lost, exchange
from kaudit.journal import difference
from kaudit.progress import Progress
from kaudit.table import Header
from kaudit.wire import Failed, Hello, Note, Observed

START_LIMIT = 180.0
"""Seconds from start to Hello: a cold import of torch and an engine from a network disk takes a minute."""

MOST_BARREN = 5
"""Deaths in a row with no cell open and none finished in between. A batch is sent twice and so is a cell alone, so that
one cell which brings the process down outside of itself makes four of them; the fifth is no cell's doing."""


@dataclass
class Host:
    """`header_of` makes a table's header from what the probe says of itself; `header` is that of the first probe."""

    command: Sequence[str]
    header_of: Callable[[Hello], Header]
    cell_limit: float
    progress: Progress
    child: Child | None = None
    header: Header | None = None
    barren: int = 0

    def greet(self) -> Header:
        """Start the first probe. Raises UserError if it cannot take cells."""
        self._ready()
        assert self.header is not None
        return self.header

    def ask(self, cells: tuple[str, ...], *, fresh: bool = False) -> Observed | Lost | Expired:
        """Have a batch observed, in a process that has served no other if `fresh`.

        Raises UserError if the probe dies again and again with no cell open, or comes back as another engine.
        """
        if fresh and self.child is not None and self.child.served:
            stop(self.child)
            self.child = None
        answer = exchange(self._ready(), cells, self.cell_limit, self.progress)
        match answer:
            case Observed():
                self.barren = 0
            case Lost(None, how, words):
                self.child = None
                self._count_barren(how, words)
            case Lost() | Expired():
                self.child = None
                self.barren = 0
        return answer

    def close(self) -> None:
        """Kill the probe if there is one."""
        if self.child is not None:
            kill(self.child)
            self.child = None

    @told_in("docs/engines.md")
    def _ready(self) -> Child:
        while self.child is None:
            self.child = start(self.command)
            match self._first_word(self.child):
                case Hello() as hello:
                    self._recognise(self.header_of(hello))
                case Failed(fault):
                    raise UserError(fault)
                case Died(how, words) if self.header is None:
                    self.child = None
                    raise UserError(f"the probe died before it took cells ({how}): {words or 'it printed nothing'}")
                case Died(how, words):
                    self.child = None
                    self._count_barren(how, words)
        return self.child

    def _first_word(self, child: Child) -> Hello | Failed | Died:
        deadline = time.monotonic() + START_LIMIT
        while True:
            match receive(child, deadline):
                case Hello() | Failed() | Died() as word:
                    return word
                case Note(text):
                    self.progress.note(text)
                case None:
                    words = kill(child)
                    self.child = None
                    raise UserError(
                        f"the probe took no cells for {START_LIMIT:g} s: {words or 'it printed nothing'}; "
                        "see that the engine imports in time where --python points"
                    )
                case message:
                    raise ProbeError(f"the probe began with {type(message).__name__}")

    def _recognise(self, header: Header) -> None:
        if self.header is not None and (changed := difference(self.header, header)):
            raise UserError(f"the engine changed during the sweep: {changed}; sweep anew, and leave it alone meanwhile")
        self.header = header

    def _count_barren(self, how: str, words: str) -> None:
        self.barren += 1
        if self.barren >= MOST_BARREN:
            raise UserError(
                f"the probe died {self.barren} times in a row with no cell open ({how}): "
                f"{words or 'it printed nothing'}; mend that, then go on with --resume"
            )
