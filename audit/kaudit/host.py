"""The seat of the probe: one process at a time, started when needed and replaced when it is gone."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from kaudit.child import Child, Died, end, kill, receive, start, stop
from kaudit.errors import ProbeError, UserError, told_in
from kaudit.exchange import MOST_MESSAGES, Expired, Lost, exchange
from kaudit.headers import difference
from kaudit.observation import Ran
from kaudit.progress import Progress
from kaudit.table import Header
from kaudit.wire import Batch, Failed, Hello, Note, Observed

START_LIMIT = 180.0
"""Seconds from start to Hello: a cold import of torch and an engine from a network disk takes a minute."""

MOST_BARREN = 5
"""Deaths in a row with no cell open and none finished in between. A batch is sent twice and so is a cell alone, so that
one cell which brings the process down outside of itself makes four of them, and its neighbour two more: then a probe
that is given no cell shows whether that is the cells' doing. Batches that do not wait for each cell are not counted."""

MOST_UNSEEN = 3
"""Cells in a row whose capture was unhealthy, each alone in a fresh process; then a probe is asked without any."""

_TRIES = 2
"""How often it is asked without any if the process dies: once may be a `kill -9` from outside."""


class Closing(Exception):
    """The sweep ends before its end: no more is to be asked of this host."""


@dataclass
class Host:
    """`header_of` makes a table's header from what the probe says of itself; `header` is that of the first probe.

    `gpu`: the one GPU that the probe is to see, as CUDA_VISIBLE_DEVICES names it; None for all that kaudit itself sees.
    `shares_gpu`: other probes of the sweep are at work there, too.
    """

    command: Sequence[str]
    header_of: Callable[[Hello], Header]
    cell_limit: float
    progress: Progress
    gpu: str | None = None
    shares_gpu: bool = False
    child: Child | None = None
    header: Header | None = None
    barren: int = 0
    unseen: int = 0
    closing: bool = False
    lock: Lock = field(default_factory=Lock)
    """Held to start a probe, and to end this host from another thread: no probe may start behind its back."""

    def launch(self) -> None:
        """Start a probe, without waiting until it can take cells. Raises UserError where its Python cannot be run."""
        seen = {} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": self.gpu}
        with self.lock:
            if self.closing:
                raise Closing
            self.child = start(self.command, {**os.environ, **seen})

    def greet(self) -> Header:
        """Wait for the probe that was launched. Raises UserError if it cannot take cells."""
        with told_in("docs/engines.md"):
            self._greet()
        assert self.header is not None
        return self.header

    def ask(self, batch: Batch, *, fresh: bool = False) -> Observed | Lost | Expired:
        """Have a batch observed, in a process that has served no other if `fresh`.

        Raises UserError if the probe dies again and again with no cell open, or does not see one cell after another
        alone, and without any cell it dies, too, or its profiler shows nothing; or if it comes back as another engine.
        """
        answer = self._exchange(batch, fresh)
        match answer:
            case Lost(None) if batch.blocking:
                self.barren += 1
                if self.barren >= MOST_BARREN:
                    self._ask_without_cells(f"the probe died {self.barren} times in a row with no cell open")
            case Lost(None):  # to be sent again: which cell it was nobody could tell
                pass
            case Observed() as observed:
                self.barren = 0
                if any(isinstance(row.outcome, Ran) for row in observed.rows):
                    self.unseen = 0
                elif fresh and observed.redo:
                    self.unseen += 1
                    if self.unseen >= MOST_UNSEEN:
                        self._ask_without_cells(f"{self.unseen} cells in a row were not seen alone")
            case _:
                self.barren = 0
        return answer

    @property
    def in_doubt(self) -> bool:
        """Whether the last cells may be unseen by no doing of theirs: nothing since has shown that one can be seen."""
        return bool(self.barren or self.unseen)

    def _exchange(self, batch: Batch, fresh: bool) -> Observed | Lost | Expired:
        if fresh and self.child is not None and self.child.served:
            stop(self.child)
            self.child = None
        answer = exchange(self._ready(), batch, self.cell_limit, self.progress)
        if not isinstance(answer, Observed):
            self.child = None
        if self.closing:
            raise Closing
        return answer

    def end(self) -> None:
        """From another thread: end the probe, so that what is being asked raises Closing. close() is to follow."""
        with self.lock:
            self.closing = True
            if (child := self.child) is not None:
                end(child)

    def close(self) -> None:
        """Kill the probe if there is one."""
        if self.child is not None:
            kill(self.child)
            self.child = None

    @told_in("docs/engines.md")
    def _ready(self) -> Child:
        while self.child is None:
            self.launch()
            self._greet()
        return self.child

    def _greet(self) -> None:
        """Wait for the first word of the probe that was launched. Where it died, `child` is None afterwards."""
        assert self.child is not None
        match self._first_word(self.child):
            case Hello() as hello:
                self._recognise(self.header_of(hello))
            case Failed(fault):
                raise self._fault(fault)
            case Died(how, words):
                self.child = None
                if self.closing:
                    raise Closing
                if self.header is None:
                    raise self._fault(
                        f"the probe died before it took cells ({how}): {words or 'it printed nothing'}; "
                        "see that kaudit and the engine import where --python points"
                    )
                self.barren += 1
                if self.barren >= MOST_BARREN:
                    raise self._barren_fault(how, words)

    def _first_word(self, child: Child) -> Hello | Failed | Died:
        deadline = time.monotonic() + START_LIMIT
        for _ in range(MOST_MESSAGES):
            match receive(child, deadline):
                case Hello() | Failed() | Died() as word:
                    return word
                case Note(text):
                    self.progress.note(text)
                case None:
                    words = kill(child)
                    self.child = None
                    raise self._fault(
                        f"the probe took no cells for {START_LIMIT:g} s: {words or 'it printed nothing'}; "
                        "see that the engine imports in time where --python points"
                    )
                case message:
                    raise ProbeError(f"the probe began with {type(message).__name__}")
        raise ProbeError(f"the probe began with {MOST_MESSAGES} messages and took no cells")

    def _recognise(self, header: Header) -> None:
        if self.header is not None and (changed := difference(self.header, header)):
            raise self._fault(
                f"the engine changed during the sweep: {changed}; sweep anew, and leave it alone meanwhile"
            )
        self.header = header

    def _ask_without_cells(self, why: str) -> None:
        """Raises UserError where a fresh probe without any cell dies, does not answer, or has a blind profiler."""
        self.progress.note(f"{why}; asking a fresh probe without any cell")
        for _ in range(_TRIES):
            match self._exchange(Batch(()), fresh=True):
                case Observed():
                    self.barren = self.unseen = 0
                    return
                case Lost(_, how, words):
                    self.barren += 1
                case Expired(_, seconds):
                    what = f"the probe did not answer within {seconds:g} s without any cell"
                    raise self._fault(f"{what}; run kaudit doctor, then go on with --resume")
        raise self._barren_fault(how, words)

    def _barren_fault(self, how: str, words: str) -> UserError:
        return self._fault(
            f"the probe died {self.barren} times in a row with no cell open ({how}): "
            f"{words or 'it printed nothing'}; mend that, then go on with --resume"
        )

    def _fault(self, text: str) -> UserError:
        return UserError(text if self.gpu is None else f"GPU {self.gpu}: {text}")
