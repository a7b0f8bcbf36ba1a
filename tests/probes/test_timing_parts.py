"""First runs, clocks and memory, each by itself."""

from collections.abc import Iterator

import pytest
import torch

from kaudit.observation import WHOLE_CELL
from kaudit_probes import clocks
from kaudit_probes.clocks import Clocks
from kaudit_probes.compiling import first_runs
from kaudit_probes.engines import Span
from kaudit_probes.memory import peaks


def test_the_first_runs_are_timed_one_by_one_and_what_triton_compiles_in_them_apart() -> None:
    triton = pytest.importorskip("triton")
    heard_before: list[bool] = []
    turn: Iterator[int] = iter(range(2))

    def earlier(*, cache_hit: bool, **_: object) -> None:
        heard_before.append(cache_hit)

    def run() -> None:
        if next(turn) == 0:
            for cache_hit in (False, True):
                times = triton.knobs.CompileTimes(1000, [("ttir", 250_000)], 2000)
                triton.knobs.compilation.listener(
                    src=None, metadata={}, metadata_group={}, times=times, cache_hit=cache_hit
                )

    triton.knobs.compilation.listener = earlier
    try:
        found = first_runs(run, 2)
        assert triton.knobs.compilation.listener is earlier
    finally:
        triton.knobs.compilation.listener = None
    assert heard_before == [False, True]
    assert (found.compiled, found.compile_us) == (1, 253_000.0)
    assert len(found.us) == 2 and all(us > 0 for us in found.us)


def test_without_triton_compilation_is_not_measured_rather_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    found = first_runs(lambda: None, 2)
    assert len(found.us) == 2
    assert found.compiled is found.compile_us is None


def test_readings_add_up_and_what_slows_a_gpu_down_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0x01, 345, 1980, True), (0x04 | 0x20, 1830, 1980, True)])
    monkeypatch.setattr(clocks.card, "clocks", lambda: next(readings))
    monkeypatch.setattr(clocks.card, "memory_clock", lambda: 3201)
    found = Clocks()
    found.read()
    found.read()
    assert (found.sm_mhz, found.memory_mhz, found.unread) == ([345, 1830], [3201, 3201], "")
    assert found.held_back == {"power cap", "software thermal slowdown"}


def test_clocks_that_cannot_be_read_are_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> tuple[int, int, int, bool]:
        raise PermissionError("NVML says no")

    monkeypatch.setattr(clocks.card, "clocks", fails)
    found = Clocks()
    found.read()
    assert found.unread == "PermissionError: NVML says no"
    assert not found.sm_mhz


def attention(length: int, span: Span) -> None:
    """Eager, one head: its scores are the most of what it holds."""
    q = torch.ones(length, 16)
    with span("attention"):
        scores = q @ q.T
        out = scores.softmax(-1) @ q
    with span("o_proj"):
        out @ torch.ones(16, 16)


@pytest.mark.parametrize("length", [256, 512])
def test_the_peak_of_an_op_is_what_it_holds_at_once(length: int) -> None:
    found = peaks(lambda span: attention(length, span), on_gpu=False)
    # Scores, and their softmax beside them; what the op before left is not counted.
    assert found["attention"] == 2 * 4 * length * length + 4 * length * 16
    assert found["o_proj"] == 4 * 16 * 16 + 4 * length * 16
    assert found[WHOLE_CELL] == found["attention"]


@pytest.mark.gpu
def test_on_a_gpu_the_peak_is_the_allocators() -> None:
    x = torch.ones(1 << 20, device="cuda")

    def run(span: Span) -> None:
        with span("copy"):
            (x + 1).add_(1)
        with span("nothing"):
            x.add_(0)

    run(lambda _: torch.no_grad())
    found = peaks(run, on_gpu=True)
    assert 4 << 20 <= found["copy"] <= 6 << 20
    assert found["nothing"] == 0
    assert found[WHOLE_CELL] == found["copy"]
