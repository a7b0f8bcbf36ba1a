"""Reads Chrome traces as torch.profiler writes them: ours, and anyone's.

Device functions belong to a range of host time by correlation: activity -> the API call with that correlation -> the
range that holds the call's start. GPU-side copies of ranges (`gpu_user_annotation`) look like device events, and are
none.
Fields come and go between torch versions, so each is optional; only a file that is no trace is an error.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_API = {"cuda_runtime", "cuda_driver"}

# API calls that put work on the device. cudaLaunchHostFunc runs on the host and leaves no device activity.
_LAUNCHES = re.compile(r"(cuda|cu|hip)\w*?(LaunchKernel|LaunchCooperative|GraphLaunch|Memcpy|Memset|ExtLaunch)")


class TraceError(ValueError):
    """The file is not a whole Chrome trace."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host-side event: an API call, an ATen op, or a range. Times in microseconds."""

    name: str
    start: float
    end: float
    thread: str
    correlation: int = 0

    @property
    def is_graph_launch(self) -> bool:
        return "GraphLaunch" in self.name

    def holds(self, other: "Host") -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Activity:
    """A device-side event: a kernel, a copy or a fill. `device_us`: its duration; `shared_memory`: bytes per block."""

    name: str
    correlation: int
    start: float
    device_us: float
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_memory: int | None = None
    graph_node: int = 0


@dataclass(frozen=True)
class Trace:
    ranges: list[Host] = field(default_factory=list)
    ops: list[Host] = field(default_factory=list)
    calls: list[Host] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)

    def launches(self) -> list[Host]:
        """API calls that launch: by their name, and whatever a device activity names as its origin."""
        caused = {activity.correlation for activity in self.activities}
        return [call for call in self.calls if call.correlation in caused or _LAUNCHES.match(call.name)]


def read(path: Path) -> Trace:
    """Read a trace, gzipped or not. Raises TraceError where the file is cut short or is something else."""
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not a whole Chrome trace: {error}") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise TraceError(f"{path}: not a Chrome trace: no list of traceEvents")
    return parse(events)


def parse(events: Iterable[Any]) -> Trace:
    trace = Trace()
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        match event.get("cat"):
            case "user_annotation":
                trace.ranges.append(_host(event))
            case "cpu_op":
                trace.ops.append(_host(event))
            case category if category in _API:
                trace.calls.append(_host(event))
            case category if category in _DEVICE:
                trace.activities.append(_activity(event))
    return trace


def leaves(ops: Iterable[Host], atoms: frozenset[str]) -> Iterator[Host]:
    """The innermost of nested ops, per thread; what runs inside an op named in `atoms` is that op's own business."""
    open_ops: dict[str, list[Host]] = {}
    has_inner: set[int] = set()
    kept: list[Host] = []
    # Of two events that start together the longer is the outer one.
    for op in sorted(ops, key=lambda op: (op.start, -op.end)):
        stack = open_ops.setdefault(op.thread, [])
        while stack and not stack[-1].holds(op):
            stack.pop()
        if any(outer.name in atoms for outer in stack):
            continue
        if stack:
            has_inner.add(id(stack[-1]))
        stack.append(op)
        kept.append(op)
    return (op for op in kept if id(op) not in has_inner)


def _host(event: dict[str, Any]) -> Host:
    start = float(event.get("ts", 0))
    return Host(
        str(event.get("name", "")),
        start,
        start + float(event.get("dur", 0)),
        f"{event.get('pid')}/{event.get('tid')}",
        _args(event).get("correlation", 0),
    )


def _activity(event: dict[str, Any]) -> Activity:
    args = _args(event)
    return Activity(
        str(event.get("name", "")),
        args.get("correlation", 0),
        float(event.get("ts", 0)),
        float(event.get("dur", 0)),
        _triple(args.get("grid")),
        _triple(args.get("block")),
        args.get("registers per thread"),
        args.get("shared memory"),
        args.get("graph node id", 0),
    )


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _triple(value: Any) -> tuple[int, int, int] | None:
    match value:
        case [int(x), int(y), int(z)]:
            return x, y, z
    return None
