"""Runs a batch of cells: prepare and warm up each, profile all in one session, and say what was seen of each."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch

from kaudit.cell import Cell
from kaudit.observation import WHOLE_CELL, Crashed, Outcome, Refused, Row
from kaudit.wire import Closed, FromProbe, Measure, Observed, Opened, Poisoned
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict
from kaudit_probes.capture import Capture, Session
from kaudit_probes.engines import Call, Engine, Span
from kaudit_probes.listen import Listener, forget_output
from kaudit_probes.rows import Words, ran

# The first run compiles, tunes and opens library handles; the second shows what the engine does from then on.
_WARM_UPS = 2

_OUT_OF_MEMORY = Crashed("out of memory")

T = TypeVar("T")


class ContextLost(Exception):
    """The CUDA context of this process is broken: nothing it says from here on counts."""

    def __init__(self, last_word: Poisoned) -> None:
        super().__init__(last_word.how)
        self.last_word = last_word


@dataclass
class _Ready:
    """A cell that was warmed up, and what it takes to run it again. `claimed`: the engine's word on its last run."""

    cell: Cell
    call: Call
    listener: Listener
    claimed: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Findings:
    """What a batch comes to."""

    rows: list[Row] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    redo: dict[str, str] = field(default_factory=dict)


class Observer:
    """Observes batches of cells of one engine. `send` carries at once what the conductor must know."""

    def __init__(self, engine: Engine, capture: Capture, send: Callable[[FromProbe], None]) -> None:
        self._engine = engine
        self._capture = capture
        self._send = send
        self._paths = engine.paths()

    def observe(self, cells: Sequence[Cell]) -> Observed:
        """Raises ContextLost, after which the process must end."""
        outcomes: dict[str, Outcome] = {}
        ready: list[_Ready] = []
        for cell in cells:
            match self._attempt(cell, partial(self._warm_up, cell)):
                case _Ready() as prepared:
                    ready.append(prepared)
                case outcome:
                    outcomes[cell.id] = outcome
        verdicts = self._capture.run(partial(self._run_all, ready, outcomes)) if ready else {}
        findings = _Findings()
        for cell_id, outcome in outcomes.items():
            if outcome == _OUT_OF_MEMORY and len(cells) > 1:
                findings.redo[cell_id] = "out of memory beside the rest of its batch"
            else:
                findings.rows.append(Row(cell_id, WHOLE_CELL, outcome))
        for prepared in ready:
            if prepared.cell.id not in outcomes:
                self._find(prepared, verdicts, findings)
        forget_output()
        return Observed(tuple(findings.rows), tuple(findings.measures), findings.redo)

    def _warm_up(self, cell: Cell) -> _Ready | Outcome:
        refusal = self._engine.supports(cell)
        if refusal is not None:
            return refusal
        listener = Listener()
        with listener.listening():
            ready = _Ready(cell, self._engine.prepare(cell), listener)
        for _ in range(_WARM_UPS):
            self._run(ready, nullcontext)
        return ready

    def _run(self, ready: _Ready, span: Span) -> None:
        with ready.listener.listening():
            ready.call.run(span)
            self._capture.synchronize()
            ready.claimed = ready.call.claimed()

    def _run_all(self, ready: Sequence[_Ready], outcomes: dict[str, Outcome], session: Session) -> None:
        for prepared in ready:
            failure = self._attempt(prepared.cell, partial(self._run, prepared, session.span(prepared.cell.id)))
            if failure is not None:
                outcomes[prepared.cell.id] = failure

    def _words(self, ready: _Ready) -> Words:
        return Words(ready.claimed, self._engine.announced(ready.listener.heard()), ready.call.explain())

    def _attempt(self, cell: Cell, work: Callable[[], T]) -> T | Outcome:
        """Do a cell's work: what it raises is its outcome, unless it took the CUDA context with it.

        A SystemExit is let through, and the cell stays open: an engine that exits has ended the process.
        """
        self._send(Opened(cell.id))
        result: T | Outcome
        try:
            result = work()
        except self._engine.refusals as error:
            result = Refused(first_line(error))
        except Exception as error:
            result = _crash(error)
            try:
                self._capture.synchronize()
            except Exception:
                raise ContextLost(Poisoned(cell.id, result.how)) from None
        self._send(Closed())
        return result

    def _find(self, ready: _Ready, verdicts: Mapping[tuple[str, str], Verdict], findings: _Findings) -> None:
        cell_id = ready.cell.id
        seen = {op: verdict for (cell, op), verdict in verdicts.items() if cell == cell_id}
        if not seen:
            findings.redo[cell_id] = "the engine marked none of its ops"
            return
        words = self._attempt(ready.cell, partial(self._words, ready))
        if isinstance(words, Refused):  # it ran: what its adapter could not say of that is no refusal
            words = Crashed(f"refused to explain itself: {words.reason}")
        if not isinstance(words, Words):
            findings.rows.append(Row(cell_id, WHOLE_CELL, words))
            return
        rows, measures = [], []
        for op, verdict in seen.items():
            if not self._paths.get(op):
                findings.redo[cell_id] = f"the engine marked {op}, for which it lists no path"
                return
            match verdict:
                case Unhealthy(why):
                    findings.redo[cell_id] = f"{op}: {why}"
                    return
                case Healthy(kernels, device_us):
                    rows.append(Row(cell_id, op, ran(ready.cell, op, kernels, self._paths[op], words)))
                    measures.append(Measure(cell_id, op, device_us))
        findings.rows.extend(rows)
        findings.measures.extend(measures)


# torch's allocators have an exception of their own for it; CUDA, its libraries, Triton and Python have others.
_NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|ALLOC_FAILED|can't allocate memory")


def _crash(error: Exception) -> Crashed:
    said = first_line(error)
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or _NO_MEMORY.search(said):
        return _OUT_OF_MEMORY
    return Crashed(f"{type(error).__name__}: {said}".removesuffix(": "))


_VARIES = re.compile(r"0x[0-9a-fA-F]+")


def first_line(error: BaseException) -> str:
    """What of an exception's text goes into a table: its first line, without addresses, at most 300 characters."""
    text = str(error).encode(errors="replace").decode()  # a path that is no UTF-8 holds what JSON cannot
    lines = text.strip().splitlines() or [""]
    return _VARIES.sub("0x…", lines[0])[:300]
