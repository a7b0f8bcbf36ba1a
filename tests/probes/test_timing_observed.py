"""From a call that is timed to the measures of its cell: what fails under the stopwatch alone costs no row."""

from test_observe import Toy, ToyCall, cell

from kaudit.observation import WHOLE_CELL, Ran
from kaudit_probes.capture import Capture
from kaudit_probes.observe import Observer
from kaudit_probes.timing import LEAST, Timer


class Tiring(ToyCall):
    """Runs as often as a sweep runs a cell, and no more."""

    runs = 0

    def run(self, span: object) -> None:
        self.runs += 1
        if self.runs > 4 and self.batch == 10:
            raise RuntimeError("worn out")
        super().run(span)  # type: ignore[arg-type]


class Tired(Toy):
    def prepare(self, cell: object) -> ToyCall:
        return Tiring(cell.shape.batch)  # type: ignore[attr-defined]


def test_each_op_and_the_cell_are_timed_and_a_failure_costs_the_time_alone() -> None:
    capture = Capture("cpu")
    observer = Observer(Tired(), capture, lambda _: None, timer=Timer(capture, 20.0))  # type: ignore[arg-type]
    observed = observer.observe([cell(1), cell(10)])
    assert all(isinstance(row.outcome, Ran) for row in observed.rows) and len(observed.rows) == 2
    timings = {(one.cell, one.op): one.timing for one in observed.measures}
    assert timings.keys() == {(of.id, op) for of in (cell(1), cell(10)) for op in ("attention", WHOLE_CELL)}
    right, tired = timings[cell(1).id, "attention"], timings[cell(10).id, WHOLE_CELL]
    assert right is not None and len(right.samples_us) >= LEAST and right.launches == 1
    assert tired is not None and tired.unknown == "timed, it crashed (RuntimeError: worn out)"
    assert not tired.samples_us


def test_without_a_timer_a_cell_runs_four_times_and_no_more() -> None:
    observer = Observer(Tired(), Capture("cpu"), lambda _: None)  # type: ignore[arg-type]
    observed = observer.observe([cell(10)])
    assert all(one.timing is None and one.op != WHOLE_CELL for one in observed.measures)
    assert isinstance(observed.rows[0].outcome, Ran)
