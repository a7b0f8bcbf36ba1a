"""CUDA graphs of a whole step: what an adapter says of one, and which kernels of a replay are whose.

All kernels of a replay carry the correlation id of its one launch, so nothing in the trace tells its ops apart. But a
graph replays the launches that it was captured with, in their order. So the same launches are made op by op as well, in
the same session, right after each replay: this outline shows which kernels each op launches, and the replay has to show
those, name by name. Where it does not, nothing is known of any of its ops.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from kaudit.launches import short
from kaudit.observation import WHOLE_CELL, Kernel, Reason
from kaudit.wire import GraphUse
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict, grouped, node_name
from kaudit_probes.engines import Span

Seen = Mapping[str, Sequence[Verdict]]
"""Per op, one verdict for each run."""


@dataclass(frozen=True)
class Graphed:
    """The call runs as one graph. `replays`: so far. `batch`: requests that the graph has room for, of which `padding`
    fill it up. `pool_bytes`: device memory set aside for it, None where that is not known."""

    replays: int
    batch: int
    padding: int
    pool_bytes: int | None


@dataclass(frozen=True)
class Ungraphed:
    """A graph was asked for, and the call runs op by op. `reasons`: the engine's."""

    reasons: tuple[Reason, ...]


class Graphing(Protocol):
    """A call that can run as one graph. Where it does, run() opens one span, WHOLE_CELL's, around the replay."""

    def graph(self) -> Graphed | Ungraphed | None:
        """Asked after a run; None where no graph was asked for."""
        ...

    def outline(self, span: Span) -> None:
        """Make the very launches of the graph, padding included, each op by itself in its span."""
        ...


def graphing(call: object) -> TypeGuard[Graphing]:
    return hasattr(call, "graph")


def of(call: object) -> Graphed | Ungraphed | None:
    return call.graph() if graphing(call) else None


def use(graph: Graphed | Ungraphed | None, kernels: Iterable[tuple[Kernel, ...]]) -> GraphUse | None:
    """What the measure file keeps of a graph. `kernels`: of each op, as they were seen."""
    if not isinstance(graph, Graphed):
        return None
    nodes = sum(kernel.count for of_op in kernels for kernel in of_op if kernel.graph)
    return GraphUse(graph.replays, nodes, graph.batch, graph.padding, graph.pool_bytes)


def outline_of(cell: str) -> str:
    """What the spans of a cell's outline are filed under in a session."""
    return f"outline of {cell}"


def by_op(seen: Seen, outline: Seen) -> Seen:
    """What each op ran in each replay. `seen` as it is where the cell ran op by op: it then has no outline."""
    if not outline:
        return seen
    replays = seen.get(WHOLE_CELL, ())
    if stray := sorted(seen.keys() - {WHOLE_CELL}):
        return {op: (Unhealthy(f"{stray[0]} was marked beside the graph"),) for op in outline}
    if odd := [op for op, takes in outline.items() if len(takes) != len(replays)]:
        why = f"{odd[0]} was marked {len(outline[odd[0]])} times in the outlines of {len(replays)} replays"
        return {op: (Unhealthy(why),) for op in outline}
    parts = [parted(replay, {op: takes[run] for op, takes in outline.items()}) for run, replay in enumerate(replays)]
    return {op: tuple(part[op] for part in parts) for op in outline}


def parted(replay: Verdict, outline: Mapping[str, Verdict]) -> Mapping[str, Verdict]:
    """The launches of one replay, shared out to the ops of its outline, which stand in the order in which they ran."""
    launches: list[tuple[str, str]] = []
    for op, verdict in outline.items():
        match verdict:
            case Unhealthy(why):
                return dict.fromkeys(outline, Unhealthy(f"the outline of the graph is not known: {op}: {why}"))
            case Healthy():
                launches += ((op, kernel.name) for kernel in verdict.order)
    match replay:
        case Unhealthy():
            return dict.fromkeys(outline, replay)
        case Healthy():
            return _shared_out(replay, launches, tuple(outline))


def _shared_out(replay: Healthy, launches: Sequence[tuple[str, str]], ops: Sequence[str]) -> Mapping[str, Verdict]:
    shares: dict[str, list[tuple[Kernel, tuple[float, float]]]] = {op: [] for op in ops}
    number = 0
    for kernel, busy in zip(replay.order, replay.busy, strict=True):
        if number < len(launches) and node_name(launches[number][1]) == node_name(kernel.name):
            shares[launches[number][0]].append((kernel, busy))
            number += 1
        elif kernel.graph or kernel.role != "fill":  # torch fills in a random state before it launches a graph
            wanted = f"{short(launches[number][1])} of {launches[number][0]}" if number < len(launches) else "no more"
            why = f"launch {number + 1} of the graph is {short(kernel.name)}, its outline has {wanted}"
            return dict.fromkeys(ops, Unhealthy(why))
    if number < len(launches):
        op, name = launches[number]
        return dict.fromkeys(ops, Unhealthy(f"the graph ends before {short(name)} of {op}, which its outline has"))
    return {
        op: Healthy(
            grouped([kernel for kernel, _ in share]),
            sum(end - start for _, (start, end) in share),
            tuple(busy for _, busy in share),
            tuple(kernel for kernel, _ in share),
        )
        for op, share in shares.items()
    }
