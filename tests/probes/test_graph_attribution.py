"""The kernels of a CUDA graph's replay, given to the ops whose outline shows the same: or to none."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import torch
from test_attribute import kernel, launch, span

from kaudit.cell import Cell
from kaudit.observation import WHOLE_CELL, Kernel, Ran, Refused, Rejection, Skipped, Unmet
from kaudit.wire import GraphUse, Observed
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict, attribute
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.graphs import Graphed, Ungraphed, by_op, use
from kaudit_probes.observe import Observer
from kaudit_probes.trace import Event, sorted_out

NORM, GEMM, MERGE = "rms_norm_kernel", "nvjet_tst_64x8", "split_kv_merge_kernel"
OUTLINE = {"norm": [NORM], "attention": ["split_kv_decode_kernel", MERGE], "view": [], "down": [NORM, GEMM]}
STEP = [name for names in OUTLINE.values() for name in names]


def seen(replay: list[str], outline: Mapping[str, list[str]] = OUTLINE, beside: str = "") -> dict[str, Verdict]:
    """Of a trace with one replay of these kernels, and its outline; `beside` is launched before the graph."""
    events: list[dict[str, Any]] = [span("first", 0), launch(1, 1), kernel(1, 500), span("replay", 10)]
    if beside:
        events += [launch(2, 11), kernel(2, 501, beside)]
    events.append(launch(3, 12, "cudaGraphLaunch"))
    for number, name in enumerate(replay):
        # Graph nodes are numbered as they were captured, whatever order they start in.
        node = kernel(3, 600 - number, name)
        node["args"]["graph node id"] = 7 + number
        events.append(node)
    correlation, at = 10, 20
    for op, names in outline.items():
        events.append(span(op, at))
        for number, name in enumerate(names):
            events += [launch(correlation, at + 1 + number), kernel(correlation, 700 + correlation, name)]
            correlation += 1
        at += 10
    events += [span("last", at), launch(9, at + 1), kernel(9, 900)]
    trace = sorted_out(msgspec.convert(events, list[Event]))
    return dict(attribute(trace, ["replay", *outline], ("first", "last"), on_gpu=True))


def parts(replay: list[str], outline: Mapping[str, list[str]] = OUTLINE, beside: str = "") -> Mapping[str, Verdict]:
    found = seen(replay, outline, beside)
    shares = by_op({WHOLE_CELL: [found["replay"]]}, {op: [found[op]] for op in outline})
    return {op: takes[0] for op, takes in shares.items()}


def whys(found: Mapping[str, Verdict]) -> set[str]:
    assert all(isinstance(verdict, Unhealthy) for verdict in found.values())
    return {verdict.why for verdict in found.values() if isinstance(verdict, Unhealthy)}


def test_each_op_gets_what_it_was_captured_with() -> None:
    found = parts(STEP)
    names = {op: [one.name for one in found[op].kernels] for op in OUTLINE}  # type: ignore[union-attr]
    assert names == OUTLINE
    for verdict in found.values():
        assert isinstance(verdict, Healthy)
        assert all(one.graph for one in verdict.kernels)
        assert verdict.device_us == 2.5 * len(verdict.order)
    assert found["norm"].busy == ((600, 602.5),)  # type: ignore[union-attr]


def test_a_memory_that_a_graph_does_not_tell_is_the_same_fill() -> None:
    outline = {"norm": [NORM], "down": ["Memset (Device)", GEMM]}
    known, unknown = (parts([NORM, fill, GEMM], outline) for fill in ("Memset (Device)", "Memset (Unknown)"))
    assert known == unknown
    assert all(isinstance(verdict, Healthy) for verdict in known.values())
    assert whys(parts([NORM, "Memcpy (Unknown)", GEMM], outline))


def test_a_random_state_filled_in_before_the_graph_is_nobodys() -> None:
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long> >"
    assert parts(STEP, beside=fill) == parts(STEP)


@pytest.mark.parametrize(
    ("replay", "why"),
    [
        (STEP[1:], "launch 1 of the graph is split_kv_decode_kernel, its outline has rms_norm_kernel of norm"),
        (STEP[:-1], f"the graph ends before {GEMM} of down, which its outline has"),
        ([*STEP, NORM], "launch 6 of the graph is rms_norm_kernel, its outline has no more"),
        (
            [NORM, MERGE, STEP[1], *STEP[3:]],
            f"launch 2 of the graph is {MERGE}, its outline has {STEP[1]} of attention",
        ),
        ([*STEP[:-1], "nvjet_tst_128x8"], f"launch 5 of the graph is nvjet_tst_128x8, its outline has {GEMM} of down"),
        ([], "1 of 1 launches have no device activity"),
    ],
    ids=["first lost", "last lost", "one more", "swapped", "another", "empty"],
)
def test_a_replay_that_is_not_its_outline_is_known_of_no_op(replay: list[str], why: str) -> None:
    assert whys(parts(replay)) == {why}


def test_a_kernel_beside_the_graph_is_not_passed_over() -> None:
    assert whys(parts(STEP, beside=MERGE)) == {f"launch 1 of the graph is {MERGE}, its outline has {NORM} of norm"}


def test_an_outline_that_cannot_be_vouched_for_tells_nothing() -> None:
    found = seen(STEP)
    outline = {op: [found[op]] for op in OUTLINE} | {"attention": [Unhealthy("lost")]}
    shares = by_op({WHOLE_CELL: [found["replay"]]}, outline)
    assert whys({op: takes[0] for op, takes in shares.items()}) == {
        "the outline of the graph is not known: attention: lost"
    }


def test_every_replay_has_an_outline_of_its_own() -> None:
    found = seen(STEP)
    outline = {op: [found[op]] for op in OUTLINE}
    shares = by_op({WHOLE_CELL: [found["replay"]] * 2}, outline)
    assert whys({op: takes[0] for op, takes in shares.items()}) == {
        "norm was marked 1 times in the outlines of 2 replays"
    }
    shares = by_op({WHOLE_CELL: [found["replay"]], "norm": [found["norm"]]}, outline)
    assert whys({op: takes[0] for op, takes in shares.items()}) == {"norm was marked beside the graph"}


def test_without_an_outline_ops_are_what_they_were_marked_as() -> None:
    takes = {"norm": [Healthy((), 0.0)]}
    assert by_op(takes, {}) is takes


def test_nodes_are_counted_as_they_were_seen() -> None:
    kernels = (Kernel("k", "f", "r", 3, graph=True), Kernel("l", "f", "r", 2))
    assert use(Graphed(4, 8, 3, None), [kernels, kernels]) == GraphUse(4, 6, 8, 3, None)
    assert use(Ungraphed(()), [kernels]) is use(None, [kernels]) is None


WHY = Unmet("batch", "65", "at most 64")


class Replaying:
    """Two ops, mm and sum, in one span of the whole cell, as a replay. The batch says what goes wrong."""

    name = "replaying"
    refusals: tuple[type[Exception], ...] = ()
    environment: tuple[str, ...] = ()

    def revision(self) -> str:
        return "1"

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"product": (Path("mm", ("aten::mm",)),), "total": (Path("sum", ("aten::sum",)),)}

    def supports(self, cell: Cell) -> Refused | Skipped | None:  # noqa: ARG002 - it takes every cell
        return None

    def prepare(self, cell: Cell) -> "ReplayingCall":
        return ReplayingCall(cell.shape.batch)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002 - it says nothing
        return {}


class ReplayingCall:
    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.x = torch.ones(2, 2)

    def run(self, span: Span) -> None:
        if self.batch > 64:
            self.outline(span)
            return
        with span(WHOLE_CELL):
            torch.mm(self.x, self.x)
            if self.batch != 2:
                self.x.sum()

    def outline(self, span: Span) -> None:
        with span("product"):
            torch.mm(self.x, self.x)
        with span("total"):
            self.x.sum()

    def graph(self) -> Graphed | Ungraphed | None:
        return Ungraphed((WHY,)) if self.batch > 64 else Graphed(4, 4, 4 - self.batch, 1 << 20)

    def claimed(self) -> Mapping[str, str]:
        return {"product": "mm", "total": "sum"}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {}


def observed(batch: int) -> Observed:
    cell = Cell.parse(f"decode/bf16/kv-bf16/h4x2x64/contiguous/causal/none/cuda_graph/b{batch}q1k8")
    observer = Observer(Replaying(), Capture("cpu"), lambda _: None)  # type: ignore[arg-type] # takes no device
    return observer.observe([cell])


def test_a_cell_that_replays_has_a_row_for_each_op() -> None:
    found = observed(3)
    rows = {row.op: row.outcome for row in found.rows}
    assert rows.keys() == {"product", "total"}
    assert isinstance(product := rows["product"], Ran)
    assert (product.path, [one.name for one in product.kernels]) == ("mm", ["aten::mm"])
    # On a CPU no kernel comes out of a graph, whatever the call says: kernels are the evidence.
    assert (product.graph_asked, product.graph_got, product.ungraphed) == ("full", "eager", ())
    assert {measure.graph for measure in found.measures} == {GraphUse(4, 0, 4, 1, 1 << 20)}


def test_a_replay_with_an_op_missing_is_redone_and_not_believed() -> None:
    found = observed(2)
    assert list(found.redo.values()) == ["product: the graph ends before sum of total, which its outline has"]
    assert not found.rows


def test_why_there_is_no_graph_stands_in_every_row() -> None:
    found = observed(65)
    assert [row.outcome.ungraphed for row in found.rows if isinstance(row.outcome, Ran)] == [(WHY,), (WHY,)]
    assert {measure.graph for measure in found.measures} == {None}
