"""What was timed of one op, or of a whole cell: the samples, and under what conditions they were taken."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

Clock = Literal["cupti", "events", "wall", "none"]
"""`cupti`: the durations of an op's kernels, as the GPU recorded them. `events`: CUDA events around the whole call, the
host's share in it included. `wall`: the host's clock, on a CPU. `none`: not timed."""


class Timing(Struct, frozen=True, omit_defaults=True):
    """None is "not measured", and `unknown` says why. `samples_us`: one per timed run, microseconds, in their order.

    Of an op on a GPU, and of the step of all of them: `span_us`, from the start of the first kernel to the end of the
    last, and `idle_us`, what of that no kernel ran; medians. `widest_gap_us`: the median of each run's longest wait for
    a kernel. `launches`: launches, on a CPU leaf ops. All three are of runs under the profiler, whose own work on the
    host widens gaps.
    Of a cell: `warm_ups`, runs before the first timed one; `first_us` and `second_us`, the host's time for the first
    two; `compiled`, kernels that Triton compiled in them, in `compile_us`. `flushed_bytes`: written before each run, to
    leave none of the inputs in the L2 cache; 0: caches as the last run left them.
    `sm_mhz`, `memory_mhz`: lowest and highest reading before, amid and after the timed runs. `held_back`: what NVML
    says slowed the GPU down meanwhile. `clocks_unread`: why NVML was not read.
    `peak_bytes`: most memory held at once, on top of what was held before. `gemm`: M×N×K of the op.
    """

    clock: Clock = "none"
    samples_us: tuple[float, ...] = ()
    unknown: str = ""
    span_us: float | None = None
    idle_us: float | None = None
    widest_gap_us: float | None = None
    launches: int | None = None
    warm_ups: int | None = None
    first_us: float | None = None
    second_us: float | None = None
    compile_us: float | None = None
    compiled: int | None = None
    flushed_bytes: int | None = None
    sm_mhz: tuple[int, ...] = ()
    memory_mhz: tuple[int, ...] = ()
    held_back: tuple[str, ...] = ()
    clocks_unread: str = ""
    peak_bytes: int | None = None
    gemm: str = ""

    @property
    def median_us(self) -> float | None:
        return quantile(self.samples_us, 0.5)

    @property
    def p95_us(self) -> float | None:
        return quantile(self.samples_us, 0.95)

    @property
    def iqr_us(self) -> float | None:
        low, high = quantile(self.samples_us, 0.25), quantile(self.samples_us, 0.75)
        return None if low is None or high is None else high - low


Timings = Mapping[tuple[str, str], Timing]
"""By cell and op; that of the whole cell under WHOLE_CELL."""


def digits(us: float) -> str:
    """Four digits, or all of a larger number."""
    return f"{us:.4g}" if us < 10_000 else f"{us:.0f}"


def quantile(samples: Sequence[float], share: float) -> float | None:
    """With straight lines between the samples, as numpy's; None of none."""
    if not samples:
        return None
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
