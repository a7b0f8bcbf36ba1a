"""From a trace to the kernels of each range, with a health verdict: what cannot be vouched for has no kernels."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kaudit.observation import Kernel
from kaudit_probes.families import classify
from kaudit_probes.trace import Event, Trace, leaves


@dataclass(frozen=True)
class Healthy:
    """Each launch of the range is accounted for. `device_us`: time in its kernels, microseconds; on a CPU, leaf ops.

    `busy`: when each launch ran, start and end on the clock of the trace, microseconds. `order`: the launches one by
    one, as `busy` has them.
    """

    kernels: tuple[Kernel, ...]
    device_us: float
    busy: tuple[tuple[float, float], ...] = field(default=(), compare=False)
    order: tuple[Kernel, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Unhealthy:
    why: str


Verdict = Healthy | Unhealthy


def agreed(takes: Sequence[Verdict], runs: int) -> Verdict:
    """What `runs` captures of one op come to, in each of which it was run once: what they all show, or no verdict.

    A capture that lost a launch and its kernel together looks whole, and so does one with a kernel under another name.
    The other run tells: a second loss would have to hit the same launch. An op without a launch did its work where its
    range does not show it, or none.
    """
    if len(takes) != runs:
        return Unhealthy(f"it was marked {len(takes)} times in {runs} runs, needs once in each")
    shown: list[Healthy] = []
    for take in takes:
        match take:
            case Unhealthy():
                return take
            case Healthy():
                shown.append(take)
    first, *others = shown
    if not first.kernels:
        return Unhealthy("nothing was launched in its range")
    for other in others:
        if odd := {*first.kernels} ^ {*other.kernels}:
            name = min(kernel.name for kernel in odd)
            return Unhealthy(f"two runs in a row do not show the same kernels: they differ in {name}")
        if other.kernels != first.kernels:
            return Unhealthy("two runs in a row show the same kernels in another order")
    return Healthy(first.kernels, min(take.device_us for take in shown))


def attribute(trace: Trace, expected: Sequence[str], sentinels: Sequence[str], on_gpu: bool) -> dict[str, Verdict]:
    """The verdict of each expected range, by name.

    A session is sound if both sentinels show a kernel, no device activity lacks its launch, and the thread of the
    sentinels made all launches; if it is not, none of its ranges is. What other threads launch inside the only range
    there is, as autograd does, is that range's. A range is sound if it stands once in the trace, and each of its
    launches has its device activity: one for a plain launch, at least one for a graph launch, whose kernels all carry
    the one correlation id.
    """
    names = {*expected, *sentinels}
    launches = trace.launches() if on_gpu else _leaf_ops(trace)
    held = _held(launches, trace.ranges, names)
    verdicts = _on_gpu(trace, held) if on_gpu else {name: _of_ops(ops) for name, ops in held.items()}
    counts = Counter(span.name for span in trace.ranges)
    for name in names:
        if counts[name] != 1:
            verdicts[name] = Unhealthy(f"its range stands {counts[name]} times in the trace, needs once")
    own = {launch.thread for name in sentinels for launch in held[name]}
    foreign = [launch for launch in launches if launch.thread not in own]
    if len(expected) == 1:
        inside = set(map(id, held[expected[0]]))
        foreign = [launch for launch in foreign if id(launch) not in inside]
    fault = _session_fault(trace, [verdicts[name] for name in sentinels], len(foreign))
    return {name: Unhealthy(fault) if fault else verdicts[name] for name in expected}


def _session_fault(trace: Trace, sentinels: Sequence[Verdict], foreign: int) -> str:
    for verdict in sentinels:
        match verdict:
            case Unhealthy(why):
                return f"a sentinel kernel of the session is not seen: {why}"
            case Healthy(kernels) if not kernels:
                return "a sentinel kernel of the session is not seen"
    launched = {call.args.correlation for call in trace.calls}
    if orphans := sum(activity.args.correlation not in launched for activity in trace.activities):
        return f"{orphans} device activities of the session have no launch call"
    if foreign:
        return f"{foreign} launches of the session are another thread's: it cannot be told for which op they are"
    return ""


def _on_gpu(trace: Trace, held: dict[str, list[Event]]) -> dict[str, Verdict]:
    by_correlation: dict[int, list[Event]] = defaultdict(list)
    for activity in trace.activities:
        by_correlation[activity.args.correlation].append(activity)
    return {name: _account(_outermost(calls), by_correlation) for name, calls in held.items()}


def _account(calls: Sequence[Event], by_correlation: dict[int, list[Event]]) -> Verdict:
    kernels: list[Kernel] = []
    device_us = 0.0
    busy: list[tuple[float, float]] = []
    if len({call.args.correlation for call in calls}) != len(calls):
        return Unhealthy("two launches carry one correlation id")
    for call in calls:
        # A graph's nodes are numbered as they were captured; parallel branches of it start in any order.
        activities = sorted(
            by_correlation[call.args.correlation], key=lambda found: (found.args.graph_node, found.start)
        )
        if not activities:
            missing = sum(not by_correlation[other.correlation] for other in calls)
            return Unhealthy(f"{missing} of {len(calls)} launches have no device activity")
        if len(activities) > 1 and not call.is_graph_launch:
            return Unhealthy(f"one {call.name} carries {len(activities)} device activities")
        kernels.extend(_kernel(activity, call.is_graph_launch) for activity in activities)
        device_us += sum(activity.us for activity in activities)
        busy.extend((activity.start, activity.end) for activity in activities)
    return Healthy(grouped(kernels), device_us, tuple(busy), tuple(kernels))


def _outermost(calls: Sequence[Event]) -> list[Event]:
    """A runtime launch shows the driver call that it makes as an event of its own, inside it, with its correlation."""
    kept: list[Event] = []
    latest: dict[int, Event] = {}
    for call in sorted(calls, key=lambda call: (call.start, -call.end)):
        outer = latest.get(call.correlation)
        if outer is None or not outer.holds(call):
            latest[call.correlation] = call
            kept.append(call)
    return kept


def _leaf_ops(trace: Trace) -> list[Event]:
    ops = [op for op in trace.ops if classify(op.name).role != "none"]
    return list(leaves(ops, frozenset(op.name for op in ops if classify(op.name).atom)))


def _of_ops(ops: Sequence[Event]) -> Verdict:
    order = tuple(_cpu_kernel(op) for op in ops)
    busy = tuple((op.start, op.end) for op in ops)
    return Healthy(grouped(order), sum(op.us for op in ops), busy, order)


def _held(events: Sequence[Event], ranges: Sequence[Event], names: set[str]) -> dict[str, list[Event]]:
    """The events that start inside each named range. Our ranges are opened one after another, so none overlaps."""
    wanted = sorted((span for span in ranges if span.name in names), key=lambda span: span.start)
    held: dict[str, list[Event]] = {name: [] for name in names}
    index = 0
    for event in sorted(events, key=lambda event: event.start):
        while index < len(wanted) and wanted[index].end < event.start:
            index += 1
        if index < len(wanted) and wanted[index].start <= event.start:
            held[wanted[index].name].append(event)
    return held


def node_name(name: str) -> str:
    """Of a graph's node. A fill or a copy is called after its memory, "Memset (Device)", which of a node is
    not always known: it differed between replays of one graph (H200, CUDA 13.0)."""
    return name.split()[0] if name.startswith(("Memset", "Memcpy")) else name


def _kernel(activity: Event, graph: bool) -> Kernel:
    family = classify(activity.name)
    return Kernel(
        node_name(activity.name) if graph else activity.name,
        family.name,
        family.role,
        1,
        family.arch,
        activity.grid,
        activity.block,
        activity.args.registers,
        activity.args.shared_memory,
        graph,
    )


def _cpu_kernel(op: Event) -> Kernel:
    family = classify(op.name)
    return Kernel(op.name, family.name, family.role, 1)


def grouped(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Equal launches counted, in order of first launch."""
    counts = Counter(kernels)
    return tuple(replace(kernel, count=count) for kernel, count in counts.items())
