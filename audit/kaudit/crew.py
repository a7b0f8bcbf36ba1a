"""Several probes at work on the runs of one sweep: a thread per host, each given its next batch as it ends one.

A cell that runs alone for the outcome that counts has its GPU to itself: where hosts share one, it waits for all.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Thread

from msgspec.structs import replace

from kaudit.beliefs import Beliefs
from kaudit.conduct import Again, alone, in_company
from kaudit.host import Closing, Host
from kaudit.journal import Entry
from kaudit.observation import Unseen
from kaudit.plan import Batches
from kaudit.runs import Run
from kaudit.shortage import threads_needed


@dataclass(frozen=True)
class Job:
    """Cells of a run for one host. `last`: the one cell runs alone, for the outcome that counts."""

    run: Run
    cells: tuple[str, ...]
    last: Again | None = None


class Work:
    """What is left to do, run after run. Methods are called from any thread."""

    def __init__(self, runs: Iterable[Run], hosts: int, *, sharing: bool) -> None:
        self._runs = deque(run for run in runs if run.cells)
        self._hosts = hosts
        self._sharing = sharing
        self._run = Run("", (), fresh=False)
        self._batches = Batches(())
        self._again: deque[Again] = deque()
        self._beliefs = Beliefs()
        self._busy = 0
        self._stopped = False
        self._changed = Condition()

    def take(self) -> Job | None:
        """The next job; waits while another host may yet leave one behind. None if there will be no more.

        Cells that run alone come after all others of their run: they cost a process each.
        """
        with self._changed:
            self._changed.wait_for(self._ready)
            if self._stopped:
                return None
            if not self._batches and not self._again:
                if not self._runs:
                    return None
                self._run = self._runs.popleft()
                self._batches = Batches(self._run.cells, self._hosts, each=1 if self._run.fresh else None)
                self._changed.notify_all()
            self._busy += 1
            if self._batches:
                return Job(self._run, self._batches.take())
            last = self._again.popleft()
            return Job(self._run, (last.cell,), last)

    def _ready(self) -> bool:
        alone = bool(self._again) and not self._sharing
        return bool(self._batches) or alone or self._stopped or not self._busy

    def believes(self, raised: Entry) -> bool:
        with self._changed:
            return self._beliefs.believes(raised)

    def learn(self, raised: Entry, alone: Entry) -> None:
        with self._changed:
            self._beliefs.learn(raised, alone)

    def done(self, job: Job, again: Sequence[Again], seconds: float) -> None:
        """A job is done, in that time, but for the cells that have to run again, alone."""
        with self._changed:
            self._busy -= 1
            self._again += again
            if not job.last:
                self._batches.took(len(job.cells), seconds)
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is handed out."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


Given = tuple[Entry, ...] | BaseException | None
"""What a thread hands over: finished cells, what ended it, or that it has no more to do."""


def conduct(hosts: Sequence[Host], runs: Iterable[Run]) -> Generator[tuple[Entry, ...]]:
    """Every cell of every run once, in groups as they are finished.

    Raises what Host.ask raises, and UserError where no thread can be started. Then, and if it is closed before its end,
    the hosts' processes are killed. At its end they die, too: a probe dies with the thread that started it.
    """
    work = Work(runs, len(hosts), sharing=any(host.shares_gpu for host in hosts))
    given: SimpleQueue[Given] = SimpleQueue()
    threads = [Thread(target=_serve, args=(host, work, given.put), daemon=True) for host in hosts]
    try:
        with threads_needed():
            for thread in threads:
                thread.start()
        working = len(threads)
        while working:
            match given.get():
                case None:
                    working -= 1
                case BaseException() as error:
                    raise error
                case entries:
                    yield entries
    except BaseException:
        work.stop()
        for host in hosts:
            host.end()
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()


def _serve(host: Host, work: Work, give: Callable[[Given], None]) -> None:
    held: list[Entry] = []
    try:
        while (job := work.take()) is not None:
            began = time.monotonic()
            again: list[Again] = []
            for entries in _finished(host, job, work, again):
                named = tuple(replace(entry, run=job.run.name) for entry in entries) if job.run.name else entries
                if host.in_doubt and any(isinstance(row.outcome, Unseen) for entry in entries for row in entry.rows):
                    held += named  # not to be kept where it proves to be no cell's doing: --resume runs it again
                else:
                    give(named)
                if held and not host.in_doubt:
                    give(tuple(held))
                    held.clear()
            work.done(job, again, time.monotonic() - began)
        if held:
            give(tuple(held))
    except Closing:
        pass
    except BaseException as error:
        give(error)
    give(None)


def _finished(host: Host, job: Job, work: Work, again: list[Again]) -> Iterator[tuple[Entry, ...]]:
    match job.last:
        case None:
            yield from in_company(host, job.cells, again, fresh=job.run.fresh)
        case Again(_, Entry() as raised) if work.believes(raised):
            yield (raised,)
        case Again(cell, raised):
            entry = alone(host, cell)
            if raised:
                work.learn(raised, entry)
            yield (entry,)
