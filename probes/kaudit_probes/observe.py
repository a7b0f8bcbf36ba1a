"""Runs a batch of cells: prepare and warm up each, profile all in one session, and say what was seen of each."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import OUT_OF_MEMORY, WHOLE_CELL, Crashed, Outcome, Refused, Row
from kaudit.transition import describe
from kaudit.wire import Closed, FromProbe, Measure, Observed, Opened, Poisoned
from kaudit_probes import graphs
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict, agreed
from kaudit_probes.capture import Capture, Session
from kaudit_probes.compiling import FirstRuns, first_runs
from kaudit_probes.engines import Call, Engine, conform, names
from kaudit_probes.failures import crash, first_line, named
from kaudit_probes.graphs import Graphed, Ungraphed
from kaudit_probes.listen import Listener, at_info, forget_output
from kaudit_probes.numerics import Checkable, Checked, Computed, check, checkable, unknown, with_numbers
from kaudit_probes.rows import Words, ran
from kaudit_probes.timing import Timer, with_timings

# The first run compiles, tunes and opens library handles; the second shows what the engine does from then on.
_WARM_UPS = 2

_TAKES = 2
"""Profiled runs of each cell, one after another, that have to show the same: see attribute.agreed()."""

T = TypeVar("T")


@dataclass
class _Ready:
    """A cell that was warmed up, and what it takes to run it again. `claimed`: the engine's word on its last run.

    `first`: what the warm-up took, where times are asked for. `graph`: the CUDA graph it ran as, or why it did not.
    """

    cell: Cell
    call: Call
    listener: Listener
    claimed: Mapping[str, str] = field(default_factory=dict)
    first: FirstRuns | None = None
    graph: Graphed | Ungraphed | None = None


@dataclass
class _Findings:
    """What a batch comes to."""

    rows: list[Row] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    redo: dict[str, str] = field(default_factory=dict)


class Observer:
    """Observes batches of cells of one engine. `send` carries at once what the conductor must know.

    `numerics`: each cell runs once more after the profiled session, and what comes out is checked. `timer`: each cell
    is timed after that session.
    """

    def __init__(
        self,
        engine: Engine,
        capture: Capture,
        send: Callable[[FromProbe], None],
        numerics: bool = False,
        timer: Timer | None = None,
    ) -> None:
        self._engine, self._capture = engine, capture
        self._send, self._numerics, self._timer = send, numerics, timer
        self._paths = engine.paths()
        self._listed = names(self._paths)
        self._blocking = True

    def observe(self, cells: Sequence[Cell], blocking: bool = True) -> Observed:
        """`blocking`: wait for the GPU after each cell, so that a fault is found with the cell that made it; see Batch.

        Raises UserError where the adapter is at fault and, without any cell, where the profiler shows nothing. A cell
        that breaks the CUDA context ends the process.
        """
        if not cells:
            self._check_profiler()
            return Observed((), (), {})
        self._blocking = blocking
        with at_info():
            return self._observe(cells)

    def _check_profiler(self) -> None:
        match agreed([self._capture.sentinel()], 1):
            case Unhealthy(why):
                raise UserError(f"the profiler shows nothing here: {why}; run kaudit doctor")

    def _observe(self, cells: Sequence[Cell]) -> Observed:
        outcomes: dict[str, Outcome] = {}
        ready: list[_Ready] = []
        for cell in cells:
            match self._attempt(cell, partial(self._warm_up, cell)):
                case _Ready() as prepared:
                    ready.append(prepared)
                case outcome:
                    outcomes[cell.id] = outcome
        self._settle()
        session = Session()
        if ready:
            with self._capture.session() as session:
                self._run_all(ready, outcomes, session)
                self._settle()
        findings = _Findings()
        findings.rows += (Row(cell_id, WHOLE_CELL, outcome) for cell_id, outcome in outcomes.items())
        for prepared in ready:
            if prepared.cell.id not in outcomes:
                outline = session.verdicts.get(graphs.outline_of(prepared.cell.id), {})
                seen = graphs.by_op(session.verdicts.get(prepared.cell.id, {}), outline)
                self._find(prepared, seen, findings, alone=len(cells) == 1)
        forget_output()
        return Observed(tuple(findings.rows), tuple(findings.measures), findings.redo)

    def _warm_up(self, cell: Cell) -> _Ready | Outcome:
        refusal = self._engine.supports(cell)
        if refusal is not None:
            conform.check_support(self._engine, cell.id, refusal)
            return refusal
        listener = Listener()
        with listener.listening():
            ready = _Ready(cell, self._engine.prepare(cell), listener)
            conform.check_call(self._engine, cell.id, ready.call)
            if self._timer:
                ready.first = first_runs(partial(self._run_timed, ready.call), _WARM_UPS)
            else:
                for _ in range(_WARM_UPS):
                    ready.call.run(nullcontext)
                self._end_cell()
        return ready

    def _run_timed(self, call: Call) -> None:
        call.run(nullcontext)
        self._capture.synchronize()

    def _end_cell(self) -> None:
        if self._blocking:
            self._capture.synchronize()

    def _settle(self) -> None:
        """Wait for all that the cells have launched. A fault of theirs ends the process with no cell open."""
        try:
            self._capture.synchronize()
        except Exception:
            os._exit(1)  # as where a cell broke the CUDA context: see _attempt

    def _run_all(self, ready: Sequence[_Ready], outcomes: dict[str, Outcome], session: Session) -> None:
        for prepared in ready:
            failure = self._attempt(prepared.cell, partial(self._run_profiled, prepared, session))
            if failure is not None:
                outcomes[prepared.cell.id] = failure

    def _run_profiled(self, ready: _Ready, session: Session) -> None:
        call, cell_id = ready.call, ready.cell.id
        for _ in range(_TAKES):
            with ready.listener.listening():
                call.run(session.span(cell_id))
                self._end_cell()
            # What it says from here on it says because it is asked: that was not announced.
            ready.claimed = call.claimed()
            if graphs.graphing(call) and isinstance(call.graph(), Graphed):
                call.outline(session.span(graphs.outline_of(cell_id)))
                self._end_cell()

    def _words(self, ready: _Ready, alone: bool) -> Words:
        ready.graph = graphs.of(ready.call)
        conform.check_graph(self._engine, ready.cell.id, ready.graph)
        reasons = ready.graph.reasons if isinstance(ready.graph, Ungraphed) else ()
        announced = self._engine.announced(ready.listener.heard())
        try:
            return Words(ready.claimed, announced, ready.call.explain(), reasons)
        except UserError:
            raise
        except Exception as error:  # it ran, and its kernels were seen: that stands, whatever asking comes to
            if crash(error) == OUT_OF_MEMORY and not alone:
                raise
            self._capture.synchronize()
            return Words(ready.claimed, announced, {}, reasons, named(error))

    def _attempt(self, cell: Cell, work: Callable[[], T], doing: str = "") -> T | Outcome:
        """Do a cell's work: what it raises is its outcome, unless the CUDA context went with it. `doing`: as Opened's.

        A SystemExit is let through, and the cell stays open: an engine that exits has ended the process.
        """
        self._send(Opened(cell.id, doing))
        result: T | Outcome
        try:
            result = work()
        except UserError:  # an adapter's mistake is no outcome
            raise
        except self._engine.refusals as error:
            result = Refused(first_line(error))
        except Exception as error:
            result = crash(error)
            try:
                self._capture.synchronize()
            except Exception as broken:
                # The CUDA context is broken. Whatever is unwound from here, the profiler and the interpreter itself,
                # would touch it, and may raise or hang. What CUDA says of it is the cause; what was raised may be only
                # where it came out, as a cuBLAS handle that could not be made.
                self._send(Poisoned(cell.id, crash(broken).how))
                os._exit(1)
        self._send(Closed())
        return result

    def _find(self, ready: _Ready, seen: Mapping[str, Sequence[Verdict]], findings: _Findings, alone: bool) -> None:
        cell_id = ready.cell.id
        if not seen:
            findings.redo[cell_id] = "the engine marked none of its ops"
            return
        words = self._attempt(ready.cell, partial(self._words, ready, alone), "asking it why")
        if isinstance(words, Refused):  # it ran: what its adapter could not say of that is no refusal
            words = Crashed(f"refused to say what it did: {words.reason}")
        if not isinstance(words, Words):
            findings.rows.append(Row(cell_id, WHOLE_CELL, words))
            return
        conform.check_ops(self._engine, cell_id, self._listed, seen)
        conform.check_words(self._engine, cell_id, self._listed, words.claimed, words.announced, words.asked)
        rows, measures, shown = [], [], {}
        for op, takes in seen.items():
            match agreed(takes, _TAKES):
                case Unhealthy(why):
                    findings.redo[cell_id] = f"{op}: {why}"
                    return
                case Healthy(kernels, device_us):
                    rows.append(Row(cell_id, op, ran(ready.cell, op, kernels, self._paths[op], words)))
                    measures.append(Measure(cell_id, op, device_us))
                    shown[op] = kernels
        if use := graphs.use(ready.graph, shown.values()):
            measures = [replace(measure, graph=use) for measure in measures]
        if self._timer and ready.first:  # before results are checked, which spoils caches on purpose
            timed = self._attempt(ready.cell, partial(self._timer.time, ready.call, ready.first, shown), "timing it")
            if timed == OUT_OF_MEMORY and not alone:
                findings.redo[cell_id] = "no memory to time it beside the rest of its batch"
                return
            measures = with_timings(measures, timed if isinstance(timed, dict) else describe(timed))
        if self._numerics and checkable(ready.call):
            checked = self._checked(ready.cell, ready.call)
            if checked is None and not alone:
                findings.redo[cell_id] = "no memory to check its results beside the rest of its batch"
                return
            rows, measures = with_numbers(rows, measures, checked)
        findings.rows.extend(rows)
        findings.measures.extend(measures)

    def _checked(self, cell: Cell, call: Checkable) -> Mapping[str, Checked] | None:
        """None where memory ran out. Of a run that fails only here no result is known, but its kernels are."""
        computed = self._attempt(cell, partial(self._numbers, call), "checking its results")
        if isinstance(computed, tuple):
            conform.check_numbers(self._engine, cell.id, self._listed, computed)
            return check(computed)  # no cell is open: the oracle's time is not the engine's
        return None if computed == OUT_OF_MEMORY else unknown(self._listed, f"run again, it {describe(computed)}")

    def _numbers(self, call: Checkable) -> tuple[Computed, ...]:
        computed = tuple(call.numbers())
        self._capture.synchronize()  # what goes wrong in it is the cell's, which is open
        return computed
