"""What runs outside every span is in no row: of the reference engine's step nothing does.

Its own tensors are laid out before it runs; what it launches, it launches for an op.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from torch.profiler import record_function

from kaudit.matrix import expand, load
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Span
from kaudit_probes.engines.reference import ReferenceEngine
from kaudit_probes.families import classify
from kaudit_probes.recording import Recording
from kaudit_probes.trace import read

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def outside(runs: dict[str, Callable[[Span], object]], device: str, folder: Path) -> dict[str, list[str]]:
    """By run, the launches that it makes outside its spans; on a CPU, the ATen ops that do work."""
    Capture(device)  # a process's first session may come back short
    with Recording(device == "cuda") as recording:
        for name, run in runs.items():
            with record_function(name):
                run(_span)
        if device == "cuda":
            torch.cuda.synchronize()
    assert recording.save(folder / "trace.json")
    trace = read(folder / "trace.json")
    launches = trace.launches() if device == "cuda" else [op for op in trace.ops if classify(op.name).role != "none"]
    spans = [each for each in trace.ranges if each.name == "span"]
    found = {}
    for each in trace.ranges:
        if each.name in runs:
            inside = [launch for launch in launches if each.holds(launch)]
            assert inside, f"{each.name} launches nothing"
            found[each.name] = [launch.name for launch in inside if not any(span.holds(launch) for span in spans)]
    assert found.keys() == runs.keys()
    return found


@contextmanager
def _span(_: str) -> Iterator[None]:
    with record_function("span"):
        yield


@pytest.mark.parametrize("device", DEVICES)
def test_the_reference_engine_launches_nothing_outside_its_spans(device: str, tmp_path: Path) -> None:
    engine = ReferenceEngine(device)
    graphs = expand(load("graphs"), 10_000).cells[:4] if device == "cuda" else ()  # without a GPU there are none
    cells = [*expand(load("smoke"), 10_000).cells, *graphs]
    calls = {cell.id: engine.prepare(cell) for cell in cells}
    for call in calls.values():
        call.run(nullcontext)  # compiles, and captures graphs
    assert outside({name: call.run for name, call in calls.items()}, device, tmp_path) == {name: [] for name in calls}


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_between_two_ops_would_be_found(device: str, tmp_path: Path) -> None:
    x = torch.ones(8, 8, device=device)

    def run(span: Span) -> None:
        with span("qkv_proj"):
            y = torch.mm(x, x)
        y.t().contiguous()
        with span("attention"):
            torch.mm(x, x)

    ((_, (first, *_)),) = outside({"run": run}, device, tmp_path).items()
    assert first in ("aten::contiguous", "aten::clone", "aten::copy_") if device == "cpu" else "Launch" in first
