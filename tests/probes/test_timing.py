"""How calls are timed: on a CPU for real, on a GPU with stand-ins for its events and its profiler; and on a GPU."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kaudit.observation import WHOLE_CELL, Kernel
from kaudit.timing import Timing
from kaudit.wire import Measure
from kaudit_probes import timing
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict
from kaudit_probes.capture import Capture, Session
from kaudit_probes.compiling import FirstRuns
from kaudit_probes.engines import Span
from kaudit_probes.timing import LEAST, MOST, WARM_UPS, Timer, gaps, runs, with_timings

FIRST = FirstRuns([9000.0, 50_000.0])
"""A second run of 50 ms: the least number of timed runs."""
KERNEL = Kernel("gemm", "gemm", "gemm", 1)


class Call:
    """Multiplies, then adds up."""

    def __init__(self, size: int = 512, device: str = "cpu") -> None:
        self.x = torch.ones(size, size, device=device)
        self.runs = 0

    def run(self, span: Span) -> None:
        self.runs += 1
        logging.getLogger("engine").error("not said while timed")
        warnings.warn("nor this", stacklevel=1)
        with span("mm"):
            y = self.x @ self.x
        with span("sum"):
            y.sum()

    def gemms(self) -> Mapping[str, tuple[int, int, int]]:
        return {"mm": (512, 512, 512)}


def kernels(call: Call, device: str) -> dict[str, tuple[Kernel, ...]]:
    """As the observer hands them over."""
    capture = Capture(device)
    with warnings.catch_warnings(action="ignore"):
        call.run(lambda _: torch.no_grad())
        with capture.session() as session:
            call.run(session.span("cell"))
    shown = {op: takes[0] for op, takes in session.verdicts["cell"].items()}
    return {op: take.kernels for op, take in shown.items() if isinstance(take, Healthy)}


def test_the_number_of_runs_hangs_on_how_long_one_takes_and_on_nothing_else() -> None:
    assert runs(1e-5, limit=20) == MOST
    assert runs(0.02, limit=20) == 25
    assert runs(1.0, limit=20) == LEAST
    assert runs(2.0, limit=20) == 20 // 2 - WARM_UPS - 1
    assert runs(4.0, limit=20) == 0


def test_gaps_are_what_no_kernel_fills() -> None:
    assert gaps([(10.0, 12.0)]) == (2.0, 0.0, 0.0)
    assert gaps([(0.0, 2.0), (3.0, 4.0), (9.0, 10.0)]) == (10.0, 6.0, 5.0)
    # Branches of a graph overlap, and a short kernel may end inside a long one.
    assert gaps([(0.0, 8.0), (1.0, 2.0), (9.0, 10.0)]) == (10.0, 1.0, 1.0)


def test_on_a_cpu_ops_and_the_call_are_timed_by_the_wall(caplog: pytest.LogCaptureFixture) -> None:
    call = Call()
    shown = kernels(call, "cpu")
    caplog.clear()
    before = call.runs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Timer(Capture("cpu"), 20.0).time(call, FIRST, shown)  # type: ignore[arg-type] # claims nothing
    assert call.runs - before == WARM_UPS + LEAST + 1
    assert not caplog.records
    assert {op: (one.clock, len(one.samples_us)) for op, one in found.items()} == dict.fromkeys(
        ("mm", "sum", WHOLE_CELL), ("wall", LEAST)
    )
    whole = found[WHOLE_CELL]
    each = zip(found["mm"].samples_us, found["sum"].samples_us, whole.samples_us, strict=True)
    assert all(0 < mm + add < cell for mm, add, cell in each)
    assert (whole.launches, whole.warm_ups, whole.first_us, whole.second_us) == (2, 5, 9000.0, 50_000.0)
    assert whole.flushed_bytes == 0
    assert found["mm"].gemm == "512×512×512"
    # Both ops hold what torch allocated: a matrix of floats, and one float beside it.
    assert found["mm"].peak_bytes == 4 * 512 * 512
    assert found["sum"].peak_bytes is not None and found["sum"].peak_bytes < 4096
    assert whole.span_us is whole.idle_us is None
    assert logging.root.manager.disable == logging.NOTSET


def test_a_call_that_is_too_slow_is_not_timed_and_says_so() -> None:
    call = Call(8)
    found = Timer(Capture("cpu"), 20.0).time(call, FirstRuns([9e6, 6e6]), {"mm": (KERNEL,)})  # type: ignore[arg-type]
    assert call.runs == 0
    assert found["mm"] == Timing(
        unknown="a run takes 6 s, 3 are too many for 20 s of timing", launches=1, gemm="512×512×512"
    )
    assert found[WHOLE_CELL].warm_ups == 2
    assert found[WHOLE_CELL].peak_bytes is None


class StandIn:
    """A capture that looks like a GPU's. `takes`: of each op, what its runs show."""

    def __init__(self, takes: Mapping[str, list[Verdict]]) -> None:
        self.on_gpu = False  # while the Timer is made: there is no GPU to ask for its cache
        self.takes = takes

    def synchronize(self) -> None:
        pass

    @contextmanager
    def session(self) -> Iterator[Session]:
        session = Session()
        yield session
        session.end([self.takes[op].pop(0) for _, op in session._opened])


def stood_in(monkeypatch: pytest.MonkeyPatch, takes: Mapping[str, list[Verdict]]) -> dict[str, Timing]:
    def event() -> Any:
        return SimpleNamespace(record=lambda: None, elapsed_time=lambda _: 0.25)

    def clocks() -> Any:
        found = SimpleNamespace(sm_mhz=[], memory_mhz=[], held_back={"power cap"}, unread="")
        readings = iter((1965, 1980, 1950))
        found.read = lambda: (found.sm_mhz.append(next(readings)), found.memory_mhz.append(3201))
        return found

    monkeypatch.setattr(timing, "_event", event)
    monkeypatch.setattr(timing, "Clocks", clocks)
    monkeypatch.setattr(timing, "peaks", lambda *_: {"mm": 1 << 20, "sum": 512, WHOLE_CELL: 1 << 21})
    capture = StandIn(takes)
    timer = Timer(capture, 20.0)  # type: ignore[arg-type]
    capture.on_gpu = True
    return timer.time(Call(8), FIRST, {"mm": (KERNEL,), "sum": (KERNEL,)})  # type: ignore[arg-type]


def take(at: float, us: float) -> Healthy:
    return Healthy((KERNEL,), us, ((at, at + us),))


def test_on_a_gpu_ops_are_timed_by_their_kernels_and_the_call_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    takes: dict[str, list[Verdict]] = {
        "mm": [take(100.0 * n, 10.0 + n) for n in range(LEAST)],
        "sum": [take(100.0 * n + 40, 2.0) for n in range(LEAST)],
    }
    found = stood_in(monkeypatch, takes)
    assert (found["mm"].clock, found["mm"].samples_us) == ("cupti", tuple(10.0 + n for n in range(LEAST)))
    assert (found["mm"].span_us, found["mm"].idle_us, found["mm"].peak_bytes) == (14.5, 0.0, 1 << 20)
    whole = found[WHOLE_CELL]
    assert (whole.clock, whole.samples_us) == ("events", (250.0,) * LEAST)
    # From the start of mm to the end of sum: 42 µs, of which sum takes 2, and mm 14.5 in the middle run.
    assert (whole.span_us, whole.idle_us, whole.widest_gap_us) == (42.0, 25.5, 25.5)
    assert (whole.sm_mhz, whole.memory_mhz, whole.held_back) == ((1950, 1980), (3201, 3201), ("power cap",))
    assert (whole.launches, whole.peak_bytes) == (2, 1 << 21)


def test_a_run_that_was_not_seen_or_ran_something_else_costs_the_op_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Healthy((Kernel("slow", "gemm", "gemm", 1),), 99.0, ((0.0, 99.0),))
    lost: list[Verdict] = [take(0.0, 1.0)] * (LEAST - 1)
    found = stood_in(monkeypatch, {"mm": [*lost, Unhealthy("a kernel is missing")], "sum": [*lost, other]})
    assert found["mm"].unknown == "1 of 10 timed runs could not be seen: a kernel is missing"
    assert found["sum"].unknown == "1 of 10 timed runs launched other kernels"
    assert found["mm"].samples_us == found["sum"].samples_us == ()
    assert found[WHOLE_CELL].samples_us and found[WHOLE_CELL].idle_us is None


def test_measures_get_their_times_and_one_of_the_whole_cell() -> None:
    measures = [Measure("c", "mm", 2.0), Measure("c", "sum", 1.0)]
    whole, mm = Timing("events", (9.0,)), Timing("cupti", (2.5,))
    assert with_timings(measures, {"mm": mm, WHOLE_CELL: whole}) == [
        Measure("c", "mm", 2.0, timing=mm),
        Measure("c", "sum", 1.0),
        Measure("c", WHOLE_CELL, 3.0, timing=whole),
    ]
    for one in with_timings(measures, "crashed (KeyError: 'q')"):
        assert one.timing == Timing(unknown="timed, it crashed (KeyError: 'q')")


@pytest.mark.gpu
def test_the_clocks_of_a_gpu_agree_with_each_other() -> None:
    call = Call(4096, "cuda")
    shown = kernels(call, "cuda")
    found = Timer(Capture("cuda"), 20.0).time(call, FirstRuns([9000.0, 2000.0]), shown)  # type: ignore[arg-type]
    mm, add, whole = found["mm"], found["sum"], found[WHOLE_CELL]
    assert (mm.clock, add.clock, whole.clock) == ("cupti", "cupti", "events")
    assert len(mm.samples_us) == len(whole.samples_us) == MOST
    assert mm.median_us and add.median_us and whole.median_us and whole.span_us and whole.idle_us is not None
    # A product of 4096³ in fp32 takes milliseconds: the host's share vanishes.
    assert mm.median_us > 10 * add.median_us
    assert whole.median_us == pytest.approx(mm.median_us + add.median_us, rel=0.2)
    assert whole.span_us == pytest.approx(mm.median_us + add.median_us + whole.idle_us, rel=0.1)
    # torch's allocator rounds up, by 2 MiB at most; cuBLAS may take a workspace beside the product.
    assert mm.peak_bytes is not None and 0 <= mm.peak_bytes - 4 * 4096**2 <= 64 << 20
    assert whole.clocks_unread or (min(whole.sm_mhz) > 100 and min(whole.memory_mhz) > 100)
    properties = torch.cuda.get_device_properties(0)
    assert whole.flushed_bytes == 2 * properties.L2_cache_size > 0
