"""Rules about cells: what `when` says, and what follows where it holds."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import get_args

from msgspec import Struct

from kaudit.cell import Cell, Feature

_ANY_LENGTH = ("kv_layout", "mask", "shape")

AXES_OF: Mapping[str, tuple[str, ...]] = {
    "phase": ("phase",),
    "dtype": ("dtype",),
    "kv_dtype": ("dtype", "kv_dtype"),
    **dict.fromkeys(("heads", "q_heads", "kv_heads", "gqa_ratio", "head_dim", "v_head_dim"), ("heads",)),
    **dict.fromkeys(("kv_layout", "page_size"), ("kv_layout",)),
    **dict.fromkeys(("mask", "window"), ("mask",)),
    **dict.fromkeys(("rope", "rope_scaling", "rope_offset"), ("rope",)),
    **dict.fromkeys(("features", *get_args(Feature)), ("features",)),
    **dict.fromkeys(("batch", "lengths"), ("shape",)),
    **dict.fromkeys(("shape", "q_len", "kv_len"), _ANY_LENGTH),
}
"""What `when` may name: the axes of a matrix file and those of `Cell.axes()`; and the file axes each one depends on.

kv_dtype depends on dtype through `same`; lengths depend on the layout's page and the mask's window.
"""


class When(Struct, frozen=True):
    """Holds for a cell where, for each key, one of the key's patterns fits the value (shell globs, case matters)."""

    keys: tuple[tuple[str, tuple[str, ...]], ...]

    def holds(self, cell: Cell) -> bool:
        return all(fits(cell, key, patterns) for key, patterns in self.keys)


class Forbid(Struct, frozen=True):
    """Cells that are not expanded, and why."""

    when: When
    because: str


class Expectation(Struct, frozen=True):
    """What the rows of `op` must show: at most one of path, family and refuses; fewest words that the file allows."""

    when: When
    op: str = "attention"
    path: str | None = None
    family: str | None = None
    refuses: bool = False
    most_launches: int | None = None
    because: str = ""


def fits(cell: Cell, key: str, patterns: tuple[str, ...]) -> bool:
    forms = values(cell, key)
    return any(fnmatchcase(form, pattern) for pattern in patterns for form in forms)


def values(cell: Cell, key: str) -> tuple[str, ...]:
    """The spellings of a cell's value under a `when` key: the matrix file's token, and the flat value where it has one.

    `kv_layout: paged16` and `kv_layout: paged` both hold for paged16; `rope: neox` holds for every scaling of neox.
    """
    match key:
        case "kv_dtype":
            return (cell.kv_dtype, "same") if cell.kv_dtype == cell.dtype else (cell.kv_dtype,)
        case "heads":
            return (str(cell.heads),)
        case "kv_layout":
            return str(cell.layout), cell.layout.kind
        case "mask":
            return str(cell.mask), cell.mask.kind
        case "rope":
            return str(cell.rope), cell.rope.style
        case "features":
            return ("+".join(cell.features) or "plain",)
        case "shape":
            return (str(cell.shape),)
        case _:
            return (str(cell.axes()[key]),)
