"""What the person who waits for a sweep is told: a bar with an ETA on a terminal, plain lines elsewhere, on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kaudit.wording import count

if TYPE_CHECKING:  # rich takes a tenth of a second to import, and a log needs none of it
    from rich.progress import Progress as RichProgress

DRAW_EVERY = 0.1
"""Seconds between two cells that a bar names: thousands go by in one, and nobody reads those."""

LINE_EVERY = 30.0
"""Seconds of silence after which a log gets a line, between the lines at every tenth of the cells."""


class Progress(Protocol):
    """What a sweep tells while it runs. Counts are in cells, each as often as it is to run."""

    def begin(self, done: int, total: int) -> None:
        """The work starts; `done` cells are there from an earlier run."""
        ...

    def opened(self, cell: str) -> None:
        """This cell is being worked on."""
        ...

    def finished(self, done: int) -> None:
        """So many cells are done by now."""
        ...

    def note(self, text: str) -> None: ...


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar if stderr is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    # Cells come in batches: a speed averaged over rich's 30 s would jump. stdout is for data, and stays as it is.
    with RichProgress(
        *columns,
        console=Console(stderr=True),
        expand=True,
        transient=True,
        speed_estimate_period=600,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as rich:
        yield Bar(rich)


class Labelled:
    """One host's share in what is told: its notes bear its name."""

    def __init__(self, whole: Progress, label: str) -> None:
        self.begin, self.opened, self.finished = whole.begin, whole.opened, whole.finished
        self._note, self._label = whole.note, label

    def note(self, text: str) -> None:
        self._note(f"{self._label}: {text}")


class Bar:
    """Draws on a terminal."""

    def __init__(self, rich: "RichProgress") -> None:
        self.rich = rich
        self.drew = 0.0
        self.task = rich.add_task("starting the probe", total=None)

    def begin(self, done: int, total: int) -> None:
        self.rich.reset(self.task, total=total, completed=done, description="")

    def opened(self, cell: str) -> None:
        now = time.monotonic()
        if now - self.drew >= DRAW_EVERY:
            self.drew = now
            self.rich.update(self.task, description=cell)

    def finished(self, done: int) -> None:
        self.rich.update(self.task, completed=done)

    def note(self, text: str) -> None:
        self.rich.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Lines:
    """Writes to a log: a line at every tenth of the cells, and one whenever LINE_EVERY seconds went by without."""

    def __init__(self) -> None:
        self.before = self.done = self.total = 0
        self.began = self.spoke = time.monotonic()

    def begin(self, done: int, total: int) -> None:
        self.before, self.done, self.total = done, done, total
        self.began = time.monotonic()
        self.note(count(total, "cell") + (f", {done} of them done before" if done else ""))

    def opened(self, cell: str) -> None:
        if time.monotonic() - self.spoke >= LINE_EVERY:
            self.note(f"{self._state()}, at {cell}")

    def finished(self, done: int) -> None:
        crossed = 10 * done // self.total > 10 * self.done // self.total
        self.done = done
        if crossed or time.monotonic() - self.spoke >= LINE_EVERY:
            self.note(self._state())

    def note(self, text: str) -> None:
        self.spoke = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def _state(self) -> str:
        state = f"{self.done} of {self.total} cells"
        if self.done == self.before or self.done == self.total:
            return state
        left = (time.monotonic() - self.began) / (self.done - self.before) * (self.total - self.done)
        return f"{state}, {left / 60:.0f} min left" if left >= 90 else f"{state}, {left:.0f} s left"
