"""What the sweep and its probe process say to each other: JSON lines over two pipes of their own, never stdout."""

from msgspec import Struct

from kaudit.observation import Row
from kaudit.table import Device
from kaudit.timing import Timing


class Batch(Struct, frozen=True, tag="batch"):
    """To the probe: the cells to observe, by id, in one profiler session. Without any it shows that the profiler works.

    `blocking`: it waits for the GPU after each cell. Without, it waits after all of them: what goes wrong on the GPU
    may then come out with another cell open, or none.
    """

    cells: tuple[str, ...]
    blocking: bool = True


class Hello(Struct, frozen=True, tag="hello"):
    """From the probe, once, when it can take cells: who the engine is, and its paths per op, fastest first."""

    engine: str
    revision: str
    device: Device
    versions: dict[str, str]
    environment: dict[str, str]
    paths: dict[str, tuple[str, ...]]


class Failed(Struct, frozen=True, tag="failed"):
    """From the probe instead of Hello: the engine cannot be used here; instead of Observed: its adapter is at fault, or
    the profiler shows nothing.

    One line that the user can act on.
    """

    fault: str


class Note(Struct, frozen=True, tag="note"):
    """From the probe: what it is busy with, for the person who waits."""

    text: str


class Opened(Struct, frozen=True, tag="opened"):
    """From the probe: this cell is being worked on. Whatever kills the process next is this cell's doing.

    `doing`: what beside running it, "timing it".
    """

    cell: str
    doing: str = ""


class Closed(Struct, frozen=True, tag="closed"):
    """From the probe: no cell is open."""


class Numbers(Struct, frozen=True):
    """How far an op's output is from the textbook's; of an op with several outputs, the worst. None: no such number.

    `error`: the largest over all elements of |error| / (root mean square of the textbook's row and head + the element's
    own size); up to `tolerance` it is right. `row`, `head`: where that is, or the first element that was not written,
    or is not finite. `max_abs`, `mean_abs`: absolute errors. `relative`: norm of the error by the norm of the textbook.
    `nonfinite`: elements that are no finite number where the textbook's is one, or the reverse. `unwritten`: rows with
    elements that were not written. The errors before are of all others. `lse_error`: absolute, of the log-sum-exp.
    Of a whole step, with the last op of its layer: `step_error`, as `error`, against a textbook that ran all of it by
    itself; `top_k`, the share of its most likely tokens that are the engine's, too; `greedy`, the share of requests in
    which both take the same token; `margin`, how far the likeliest is before the next, at least, in spreads of logits.
    `hint`: what the output looks like, where one known mistake gives just that; or why nothing is known.
    """

    error: float | None = None
    tolerance: float | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    relative: float | None = None
    cosine: float | None = None
    row: int | None = None
    head: int | None = None
    nonfinite: int = 0
    unwritten: int = 0
    lse_error: float | None = None
    step_error: float | None = None
    top_k: float | None = None
    greedy: float | None = None
    margin: float | None = None
    hint: str = ""


class GraphUse(Struct, frozen=True):
    """The CUDA graph that a cell ran as. `nodes`: launches in it. `batch`: requests that it has room for, of which
    `padding` only fill it up. `pool_bytes`: device memory set aside for it; None: not known."""

    replays: int
    nodes: int
    batch: int
    padding: int
    pool_bytes: int | None


class Measure(Struct, frozen=True, omit_defaults=True):
    """What varies between runs of one (cell, op): it goes to the measure file, never to the table.

    `device_us`: device time of the op's kernels (on a CPU, time in its leaf ops), microseconds, in the faster of the
    profiled runs.
    `numbers`: where the result was checked. `timing`: where it was timed; that of the whole cell is of op WHOLE_CELL,
    and `device_us` there the sum over the ops. `graph`: of the cell, where it ran as a CUDA graph.
    """

    cell: str
    op: str
    device_us: float
    numbers: Numbers | None = None
    timing: Timing | None = None
    graph: GraphUse | None = None


class Observed(Struct, frozen=True, tag="observed"):
    """From the probe: the rows of a batch. A cell whose capture was unhealthy is in `redo` and has no row yet."""

    rows: tuple[Row, ...]
    measures: tuple[Measure, ...]
    redo: dict[str, str]


class Poisoned(Struct, frozen=True, tag="poisoned"):
    """From the probe, its last word: the open cell broke the CUDA context, and the process ends."""

    cell: str
    how: str


FromProbe = Hello | Failed | Note | Opened | Closed | Observed | Poisoned
