"""What a kernel requires, as the rules of a matrix: the combinations of values that it turns down."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from kaudit.applicable import inapplicable
from kaudit.cell import Cell
from kaudit.matrix.model import Axes
from kaudit.matrix.rules import Forbid, When
from kaudit.matrix.space import cell_of
from kaudit_kernels.admission import Inadmissible, admit
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import Requirement
from kaudit_probes.engines.reference import problem_of

Device = tuple[int, int]
"""sm and sm_count."""

AXES = Axes.__struct_fields__

_AXES_OF: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("phase", "dtype", "kv_layout", "mask", "rope", "features")},
    "weight_dtype": ("dtype",),
    "kv_dtype": ("dtype", "kv_dtype"),  # it may be the same
    **dict.fromkeys(("q_heads", "kv_heads", "head_dim", "v_head_dim"), ("heads",)),
    "page_size": ("kv_layout",),
    "window": ("mask",),
    **dict.fromkeys(("rope_scaling", "rope_offset"), ("rope",)),
    **dict.fromkeys(("batch", "q_len", "kv_len", "skew"), ("shape",)),
}
"""The axes of a matrix that each field of a problem comes from; the device and the vocabulary are no axes."""

_SEEN = Cell.parse("decode/bf16/kv-bf16/h1x1x64/paged16/window9/neox/prefix_share/b3q1k100skew")
"""A cell of which every property reads all that it can hang on."""


def sensible(kernel: Kernel, cell: Cell, device: Device) -> bool:
    """Whether the cell means something and the kernel takes it. `worth` is not looked at: slow has to be right, too."""
    problem = problem_of(cell, *device)
    try:
        admit(problem)
    except Inadmissible:
        return False
    return inapplicable(cell) is None and all(unmet.worth for unmet in kernel.unmet(problem))


def meets(kernel: Kernel, cell: Cell, axis: str, device: Device) -> bool:
    """Whether the cell meets what the kernel requires of this axis of a matrix, whatever else it lacks."""
    problem = problem_of(cell, *device)
    return not any(needed.check(problem) for needed in kernel.requires if axis in _looks_at(needed))


def rules(kernel: Kernel, axes: Axes, device: Device) -> Iterator[Forbid]:
    """Requirement by requirement, and each of those combinations alone."""
    for needed in kernel.requires:
        names = _looks_at(needed)
        values = [getattr(axes, name) if name in names else getattr(axes, name)[:1] for name in AXES]
        for combination in product(*values):
            cell = cell_of(combination, max_len=1)
            if isinstance(cell, Cell) and needed.check(problem_of(cell, *device)):
                given = dict(zip(AXES, combination, strict=True))
                yield Forbid(When(tuple((name, (_token(given[name]),)) for name in names)), str(needed))


class _Watched:
    """A problem that remembers which of its fields are read, by its properties too."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(Problem, name, None)
        if isinstance(found, property) and found.fget:
            return found.fget(self)
        self.read.add(name)
        return getattr(self.problem, name)


def _looks_at(needed: Requirement) -> tuple[str, ...]:
    """The axes of a matrix that a requirement hangs on, in their order."""
    problem: Any = _Watched(problem_of(_SEEN, 90, 132))
    needed.check(problem)
    axes = {axis for name in problem.read for axis in _AXES_OF.get(name, ())}
    return tuple(name for name in AXES if name in axes)


def _token(value: Any) -> str:
    return ("+".join(value) or "plain") if isinstance(value, tuple) else str(value)
