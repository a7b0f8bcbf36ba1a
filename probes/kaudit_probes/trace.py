"""Reads Chrome traces as torch.profiler writes them: ours, and anyone's.

Device functions belong to a range of host time by correlation: activity -> the API call with that correlation -> the
range that holds the call's start. GPU-side copies of ranges (`gpu_user_annotation`) look like device events, and are
none.
Fields come and go between torch versions, so each is optional; only a file that is no trace is an error.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_API = {"cuda_runtime", "cuda_driver"}

# API calls that put work on the device. cudaLaunchHostFunc runs on the host and leaves no device activity.
_LAUNCHES = re.compile(r"(cuda|cu|hip)\w*?(LaunchKernel|LaunchCooperative|GraphLaunch|Memcpy|Memset|ExtLaunch)")


MOST_UNPACKED = 2 << 30
"""Bytes of a trace, unpacked: of ours the largest have some 100 MB, of days of training some GB. Zeros pack a
thousandfold."""


class TraceError(ValueError):
    """The file is not a whole Chrome trace."""


class _Args(Struct, frozen=True, gc=False):
    correlation: int = 0
    grid: tuple[int, int, int] | str | None = None
    block: tuple[int, int, int] | str | None = None
    registers: int | None = msgspec.field(default=None, name="registers per thread")
    shared_memory: int | None = msgspec.field(default=None, name="shared memory")
    graph_node: int = msgspec.field(default=0, name="graph node id")


_NO_ARGS = _Args()

Thread = tuple[int | str, int | str]
"""Process and thread, as a trace numbers them."""


class Event(Struct, frozen=True, gc=False):
    """One event. On the host: an API call, an ATen op or a range; on the device: a kernel, a copy or a fill.

    `start` and `us`, its duration, are in microseconds.
    """

    ph: str = ""
    cat: str = ""
    name: str = ""
    start: float = msgspec.field(default=0.0, name="ts")
    us: float = msgspec.field(default=0.0, name="dur")
    pid: int | str = 0
    tid: int | str = 0
    args: _Args = _NO_ARGS

    @property
    def end(self) -> float:
        return self.start + self.us

    @property
    def thread(self) -> Thread:
        return self.pid, self.tid

    @property
    def correlation(self) -> int:
        return self.args.correlation

    @property
    def grid(self) -> tuple[int, int, int] | None:
        return _triple(self.args.grid)

    @property
    def block(self) -> tuple[int, int, int] | None:
        return _triple(self.args.block)

    @property
    def is_graph_launch(self) -> bool:
        return "GraphLaunch" in self.name

    def holds(self, other: "Event") -> bool:
        return self.start <= other.start and other.end <= self.end


def _triple(value: tuple[int, int, int] | str | None) -> tuple[int, int, int] | None:
    """An op by which Inductor calls a Triton kernel carries its grid, too, as text."""
    return None if isinstance(value, str) else value


@dataclass(frozen=True)
class Trace:
    ranges: list[Event] = field(default_factory=list)
    ops: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    activities: list[Event] = field(default_factory=list)

    def launches(self) -> list[Event]:
        """API calls that launch: by their name, and whatever a device activity names as its origin."""
        caused = {activity.correlation for activity in self.activities}
        return [call for call in self.calls if call.correlation in caused or _launches(call.name)]


@lru_cache(maxsize=1 << 10)
def _launches(name: str) -> bool:
    return _LAUNCHES.match(name) is not None


class _Document(Struct, gc=False):
    traceEvents: list[Event]  # noqa: N815 (the format's name)


_decoder = msgspec.json.Decoder(_Document | list[Event])


def read(path: Path) -> Trace:
    """Read a trace, gzipped or not. Raises TraceError where the file is cut short or is something else."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                data = file.read(MOST_UNPACKED + 1)
        if len(data) > MOST_UNPACKED:
            raise TraceError(f"{path}: more than {MOST_UNPACKED >> 20} MiB; record fewer steps")
        document = _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path}: not a Chrome trace: {error}") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{path}: not a whole Chrome trace: {error}") from None
    return sorted_out(document.traceEvents if isinstance(document, _Document) else document)


def sorted_out(events: Iterable[Event]) -> Trace:
    trace = Trace()
    for event in events:
        if event.ph != "X":
            continue
        if event.cat in _DEVICE:
            trace.activities.append(event)
        elif event.cat in _API:
            trace.calls.append(event)
        elif event.cat == "cpu_op":
            trace.ops.append(event)
        elif event.cat == "user_annotation":
            trace.ranges.append(event)
    return trace


def leaves(ops: Iterable[Event], atoms: frozenset[str]) -> Iterator[Event]:
    """The innermost of nested ops, per thread; what runs inside an op named in `atoms` is that op's own business."""
    open_ops: dict[Thread, list[Event]] = {}
    has_inner: set[int] = set()
    kept: list[Event] = []
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
