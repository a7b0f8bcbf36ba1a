"""What was seen of one (cell, op): a union of outcomes, each with its evidence.

Kernels are evidence; claims and reasons are hints. "I could not see" is `Unseen`, never an empty `Ran`.

`gc=False`: frozen values form no cycles, a large table holds a million of them, and the collector's walks over them
took three quarters of the time to read it.
"""

from typing import Literal

from msgspec import Struct

from kaudit.ranks import faster

GraphMode = Literal["eager", "full", "partial"]
Numerics = Literal["unchecked", "ok", "wrong", "unwritten"]
Source = Literal["announced", "asked"]

WHOLE_CELL = "*"
"""The op of a row that speaks for a whole cell: one that was skipped, refused, crashed, hung or unseen."""

UNCLASSIFIED = "unclassified"
"""The family of a kernel that no pattern of families.yaml matches."""


class Unmet(Struct, frozen=True, gc=False, tag="unmet", omit_defaults=True):
    """A requirement that the cell does not meet: `page_size=8, needs a multiple of 16`.

    `worth` tells apart what would be wrong or not launch (False) from what runs, but the next path is faster (True).
    `mirrored`: not the engine's word but a condition of its code that kaudit knows and checked; it is marked so.
    """

    axis: str
    seen: str
    needed: str
    worth: bool = False
    mirrored: bool = False

    def __str__(self) -> str:
        whose = "kaudit: " if self.mirrored else ""
        return f"{whose}{self.axis}={self.seen}, {'pays with' if self.worth else 'needs'} {self.needed}"


class Said(Struct, frozen=True, gc=False, tag="said"):
    """The engine's own text, kept as it came."""

    text: str

    def __str__(self) -> str:
        return self.text


Reason = Unmet | Said


class Rejection(Struct, frozen=True, gc=False):
    """One faster path turned down. `source`: announced by the engine during the run, or asked of it afterwards."""

    path: str
    source: Source
    reasons: tuple[Reason, ...]


class Kernel(Struct, frozen=True, gc=False, omit_defaults=True):
    """Launches of one device function with one configuration; on a CPU, calls of one leaf ATen op.

    `name` is the profiler's, raw. `arch` is the architecture generation that the name states ("sm80"), not the GPU's.
    `grid` and `block` are in blocks and threads, `shared_memory` in bytes per block; all None on a CPU.
    """

    name: str
    family: str
    role: str
    count: int
    arch: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_memory: int | None = None
    graph: bool = False


class Ran(Struct, frozen=True, gc=False, tag="ran", omit_defaults=True):
    """The op ran and its kernels were seen, each launch accounted for.

    `path` is read off the kernels, None where they match none of the engine's paths; `claimed` is the engine's word.
    `kernels` stand in order of first launch. `graph_asked` and `graph_got` compare the CUDA-graph mode wanted and seen;
    `ungraphed` is why the engine made no graph.
    `ignored`: of a wrong result, a feature without which it would be right.
    """

    path: str | None
    kernels: tuple[Kernel, ...]
    claimed: str | None = None
    rejections: tuple[Rejection, ...] = ()
    graph_asked: GraphMode = "eager"
    graph_got: GraphMode = "eager"
    numerics: Numerics = "unchecked"
    ignored: str = ""
    ungraphed: tuple[Reason, ...] = ()

    @property
    def launches(self) -> int:
        return sum(kernel.count for kernel in self.kernels)

    def announced(self, path: str | None) -> tuple[Rejection, ...]:
        """What the engine announced, with reasons, of turning down this very path."""
        return tuple(no for no in self.rejections if no.source == "announced" and no.reasons and no.path == path)

    def explains(self, path: str | None) -> bool:
        """Whether the engine announced a reason for turning down this very path."""
        return bool(self.announced(path))

    @property
    def contradiction(self) -> bool:
        return self.claimed is not None and self.claimed != self.path


class Predicted(Struct, frozen=True, gc=False, tag="predicted", omit_defaults=True):
    """The path that the engine's own selector says it would choose. Nothing ran, and no kernel was seen.

    `rejections`: what the selector says of faster paths, all "asked". A table holds predictions or observations.
    """

    path: str
    rejections: tuple[Rejection, ...] = ()


class Refused(Struct, frozen=True, gc=False, tag="refused"):
    """The engine said no, in words, and ran nothing."""

    reason: str


class Crashed(Struct, frozen=True, gc=False, tag="crashed"):
    """The cell ended in a signal, an exit, a CUDA error or an exception that the engine does not mean as a refusal.

    `how` is deterministic ("SIGSEGV", "exit 3", "KeyError: 'q'"); what varies (addresses, pids) stays out of the table.
    """

    how: str


OUT_OF_MEMORY = Crashed("out of memory")
"""Of the GPU or of the host; beside other cells it may be their doing."""


class Hung(Struct, frozen=True, gc=False, tag="hung"):
    """The cell did not end within its limit, in seconds."""

    limit: float


class Unseen(Struct, frozen=True, gc=False, tag="unseen"):
    """The cell ran, but the capture cannot vouch for what ran: which check failed, twice. Of a prediction: the selector
    could not be asked to the end where the sweep ran."""

    why: str


class Skipped(Struct, frozen=True, gc=False, tag="skipped"):
    """Not run: the combination contradicts itself, or the engine's adapter cannot express it."""

    reason: str


Chosen = Ran | Predicted
"""What names a path: by its kernels, or by the engine's selector alone."""

Outcome = Chosen | Refused | Crashed | Hung | Unseen | Skipped


Rerun = Literal["again", "alone"]
"""How a cell was run another time: in the same processes, or alone in a fresh one."""


class Other(Struct, frozen=True, gc=False):
    """What another run of the same sweep showed, where that differs. `outcome` is None if its ops were without `op`."""

    run: Rerun
    op: str
    outcome: Outcome | None


class Row(Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of a table. `op` is WHOLE_CELL where the outcome is not of a single op.

    `others` has no outcome twice, and is empty where the cell ran once, or always came to the same.
    """

    cell: str
    op: str
    outcome: Outcome
    others: tuple[Other, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.cell, self.op


def is_fallback(chosen: Chosen, paths: tuple[str, ...]) -> bool:
    """Whether the path is not the first of `paths` (fastest first); an unrecognised path is a fallback."""
    return chosen.path != paths[0]


def unannounced(ran: Ran, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths faster than the one that ran for which the engine announced no reason during the run."""
    return tuple(path for path in faster(ran.path, paths) if not ran.explains(path))


def is_silent_fallback(ran: Ran, paths: tuple[str, ...]) -> bool:
    """Whether a faster path was passed over without a word: what is said of one path announces nothing of another."""
    return bool(unannounced(ran, paths))
