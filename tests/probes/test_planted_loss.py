"""What a profiler may lose, planted into real traces: a loss costs the cell that it hit its row, and changes none."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kaudit.cell import Cell
from kaudit.observation import Row
from kaudit_probes.capture import Capture
from kaudit_probes.engines.sdpa import SdpaEngine
from kaudit_probes.families import classify
from kaudit_probes.observe import Observer
from kaudit_probes.recording import Recording

CELLS = [
    Cell.parse(f"prefill/{dtype}/kv-{dtype}/h4x2x64/contiguous/{mask}/none/plain/b1q17k17")
    for dtype, mask in (("bf16", "causal"), ("fp32", "custom"))
]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LAUNCHED = {"cpu": {"cpu_op"}, "cuda": {"kernel", "gpu_memcpy", "gpu_memset"}}

Events = list[dict[str, Any]]
Loss = Callable[[Events], Events]


class Bench:
    """Observes the cells again and again, each time with a loss in the profiler's file."""

    def __init__(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.observer = Observer(SdpaEngine(device), Capture(device), lambda _: None)
        self.events: Events = []
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        save = Recording.save

        def spoiled(recording: Recording, path: Path) -> bool:
            saved = save(recording, path)
            data = path.read_bytes()
            self.events = json.loads(data)["traceEvents"]
            path.write_bytes(self.spoil(data))
            return saved

        monkeypatch.setattr(Recording, "save", spoiled)
        self.truth = self.rows()
        assert {row.cell for row in self.truth} == {cell.id for cell in CELLS}
        self.launched = [self.events[n] for n in launched(self.events)]

    def rows(self) -> list[Row]:
        observed = self.observer.observe(CELLS)
        self.redo = observed.redo
        return list(observed.rows)

    def hit_by(self, loss: Loss) -> set[str]:
        """The cells that a loss costs. All that is told is true."""

        def spoil(data: bytes) -> bytes:
            return json.dumps({"traceEvents": loss(json.loads(data)["traceEvents"])}).encode()

        return self.hit_by_bytes(spoil)

    def hit_by_bytes(self, spoil: Callable[[bytes], bytes]) -> set[str]:
        self.spoil = spoil
        rows = self.rows()
        assert [row for row in self.truth if row.cell not in self.redo] == rows
        assert {row.cell for row in rows} | self.redo.keys() == {cell.id for cell in CELLS}
        return set(self.redo)


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield Bench(request.param, monkeypatch)


def launched(events: Events) -> list[int]:
    """Where the kernels or ops stand in the file, in order of time: times and ids differ from run to run."""
    kinds = LAUNCHED["cuda"] if any(event.get("cat") == "kernel" for event in events) else LAUNCHED["cpu"]
    found = [n for n, event in enumerate(events) if event.get("ph") == "X" and event.get("cat") in kinds]
    found = [n for n in found if classify(events[n]["name"]).role != "none"]  # an op that only makes a view
    return sorted(found, key=lambda n: float(events[n]["ts"]))


def dropped(which: int) -> Loss:
    def loss(events: Events) -> Events:
        gone = launched(events)[which]
        return [event for n, event in enumerate(events) if n != gone]

    return loss


def dropped_with_its_launch(which: int) -> Loss:
    def loss(events: Events) -> Events:
        gone = events[launched(events)[which]]["args"]["correlation"]
        return [event for event in events if event.get("args", {}).get("correlation") != gone]

    return loss


def renamed(which: int, name: str) -> Loss:
    def loss(events: Events) -> Events:
        changed = launched(events)[which]
        return [{**event, "name": name} if n == changed else event for n, event in enumerate(events)]

    return loss


def merged(which: int) -> Loss:
    """The launch and its kernel take the id of the next."""

    def loss(events: Events) -> Events:
        one, other = (events[launched(events)[n]]["args"]["correlation"] for n in (which, which + 1))
        return [
            {**event, "args": {**event["args"], "correlation": other}}
            if event.get("args", {}).get("correlation") == one
            else event
            for event in events
        ]

    return loss


def places(bench: Bench, most: int) -> range:
    """The first, the last, and some between."""
    count = len(bench.launched)
    return range(0, count, max(1, count // most))


@pytest.mark.parametrize("bench", DEVICES, indirect=True)
def test_a_kernel_that_is_lost(bench: Bench) -> None:
    hits = [bench.hit_by(dropped(which)) for which in (*places(bench, 16), len(bench.launched) - 1)]
    assert all(hits[place] == {cell.id for cell in CELLS} for place in (0, -1)), "a sentinel, and so the session"
    assert {cell.id for cell in CELLS} == set.union(*hits[1:-1])


@pytest.mark.gpu
@pytest.mark.parametrize("bench", ["cuda"], indirect=True)
def test_a_kernel_that_is_lost_with_its_launch(bench: Bench) -> None:
    assert all(bench.hit_by(dropped_with_its_launch(which)) for which in places(bench, 16))


@pytest.mark.gpu
@pytest.mark.parametrize("bench", ["cuda"], indirect=True)
def test_two_correlation_ids_that_are_merged(bench: Bench) -> None:
    assert all(bench.hit_by(merged(which)) for which in places(bench, 16)[:-1])


@pytest.mark.parametrize("bench", DEVICES, indirect=True)
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "another"])
def test_a_kernel_under_another_name(bench: Bench, known: bool) -> None:
    hits = set()
    for which in places(bench, 12)[1:-1]:
        others = [event["name"] for event in bench.launched if event["name"] != bench.launched[which]["name"]]
        hits |= bench.hit_by(renamed(which, others[-1] if known else "a_kernel_of_nobody"))
    assert hits == {cell.id for cell in CELLS}


@pytest.mark.parametrize("bench", DEVICES, indirect=True)
def test_a_session_that_comes_back_empty(bench: Bench) -> None:
    everywhere = {cell.id for cell in CELLS}
    assert bench.hit_by(lambda _: []) == everywhere
    only_host = LAUNCHED["cpu" if bench.launched[0]["cat"] == "cpu_op" else "cuda"]
    assert bench.hit_by(lambda events: [event for event in events if event.get("cat") not in only_host]) == everywhere


@pytest.mark.parametrize("bench", DEVICES, indirect=True)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_file_that_is_cut_short(bench: Bench, part: float) -> None:
    assert bench.hit_by_bytes(lambda data: data[: int(part * len(data))]) == {cell.id for cell in CELLS}
