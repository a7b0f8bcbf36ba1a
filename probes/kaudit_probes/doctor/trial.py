"""The evidence: launch what is known, record it as a sweep does, and compare.

Ten ranges hold 1, 3, … 19 launches of one kernel, a hundred in all: no two ranges are alike, so a launch that is lost,
or put down to its neighbour, shows. On a GPU the same kernel is replayed from two CUDA graphs, too. In several
sessions, for some faults come with a process's second.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from kaudit.diagnosis import Fault, Finding, Ok
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict
from kaudit_probes.capture import Capture, Session
from kaudit_probes.listen import Listener

LAUNCHES = {f"{count} launches": count for count in range(1, 20, 2)}
GRAPHS = {f"graph of {nodes}": nodes for nodes in (10, 20)}
SESSIONS = 3

_KERNEL = {"cpu": "aten::add_", "cuda": "CUDAFunctor_add"}
"""What stands in the name of the one kernel that is launched."""

Seen = Mapping[str, Verdict]

_CELL = "trial"


@dataclass(frozen=True)
class Tried:
    """`start_up_s`, `empty_s`: seconds until the profiler was ready, and of a session around nothing; `sessions`: what
    each showed; `said`: what torch and CUPTI printed meanwhile."""

    start_up_s: float
    empty_s: float
    sessions: tuple[Seen, ...]
    said: str


def attempt(kind: str) -> Tried:
    listener = Listener()
    with listener.listening():
        start = time.perf_counter()
        capture = Capture(kind)
        ready = time.perf_counter()
        body = _body(kind)
        sessions = tuple(_seen(capture, body) for _ in range(SESSIONS))
        before = time.perf_counter()
        _seen(capture, lambda _: None)
        after = time.perf_counter()
    return Tried(ready - start, after - before, sessions, listener.heard().output)


def _seen(capture: Capture, body: Callable[[Session], None]) -> Seen:
    with capture.session() as session:
        body(session)
    return {op: verdict for op, (verdict,) in session.verdicts.get(_CELL, {}).items()}


def judge(tried: Tried, kind: str) -> Finding:
    expected = LAUNCHES | GRAPHS if kind == "cuda" else LAUNCHES
    wrong = [
        f"{op}: {fault}"
        for seen in tried.sessions
        for op, launches in expected.items()
        if (fault := _fault(seen.get(op), launches, _KERNEL[kind], op in GRAPHS))
    ]
    launched = sum(expected.values()) * len(tried.sessions)
    if wrong:
        spoken = [line for line in tried.said.splitlines() if "CUPTI" in line]
        return Fault(
            f"{len(wrong)} of {len(expected) * len(tried.sessions)} ranges are not as launched: {wrong[0]}"
            + (f"; torch says: {spoken[-1].strip()}" if spoken else ""),
            "what the warnings above say; if there is none, close whatever else profiles, and report this output",
        )
    what = "launches, graph replays among them," if kind == "cuda" else "calls"
    return Ok(
        f"all {launched} {what} came back, each in its range, over {len(tried.sessions)} sessions; "
        f"start-up {tried.start_up_s:.1f} s, a session around nothing {1e3 * tried.empty_s:.0f} ms"
    )


def _body(kind: str) -> Callable[[Session], None]:
    x, y = torch.zeros(8, device=kind), torch.ones(8, device=kind)
    replays = {op: _graph(x, y, nodes) for op, nodes in GRAPHS.items()} if kind == "cuda" else {}

    def body(session: Session) -> None:
        span = session.span(_CELL)
        for op, launches in LAUNCHES.items():
            with span(op):
                for _ in range(launches):
                    x.add_(y)
        for op, replay in replays.items():
            with span(op):
                replay()

    return body


def _graph(x: torch.Tensor, y: torch.Tensor, nodes: int) -> Callable[[], None]:
    """Captured after the profiler's first session: CUPTI attaching to a graph that is there already has hung."""
    x.add_(y)  # loads the kernel's module, which a capture may not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(nodes):
            x.add_(y)
    return graph.replay


def _fault(verdict: Verdict | None, launches: int, name: str, in_graph: bool) -> str:
    """What is not as launched, empty if all is. Around a graph's launch torch fills its random state: not counted."""
    match verdict:
        case None:
            return "its range is not told of"
        case Unhealthy(why):
            return why
        case Healthy(kernels):
            ours = [kernel for kernel in kernels if kernel.graph == in_graph]
            if strange := [kernel.name for kernel in ours if name not in kernel.name]:
                return f"a kernel that nobody launched: {strange[0]}"
            seen = sum(kernel.count for kernel in ours)
            return "" if seen == launches else f"{seen} of {launches} launches are seen"
