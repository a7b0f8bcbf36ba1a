"""What the gate fails on, and what is waived: two YAML files.

fail_on: [silent_fallback, crashed]      # policy.yaml; without it, DEFAULT_FAIL_ON
rules:                                   # the last one that matches a change decides
  - cells: "decode/*"
    op: attention
    fail_on: [silent_fallback, crashed, relaunched]
    because: decode is what we sell

- cells: "*/h8x8x64/*"                   # waivers.yaml
  kind: silent_fallback
  because: the kernel for head_dim 64 lands in 2.4
  expires: 2026-12-31                    # the last day on which it holds
"""

from datetime import date
from pathlib import Path
from typing import Annotated, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from kaudit.change import Change, Kind
from kaudit.errors import UserError
from kaudit.globs import glob

DEFAULT_FAIL_ON: tuple[Kind, ...] = ("wrong_result", "crashed", "hung", "contradiction", "silent_fallback", "unseen")

T = TypeVar("T")


def _unquoted(value: object) -> object:
    """YAML reads a bare 2026-12-31 as a date and a quoted one as text; both are meant as the date."""
    return date.fromisoformat(value) if isinstance(value, str) else value


Kinds = Annotated[tuple[Kind, ...], Field(strict=False)]  # a YAML list is no tuple to a strict model
Text = Annotated[str, Field(min_length=1)]
Day = Annotated[date, BeforeValidator(_unquoted)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Rule(_Strict):
    """Replaces `fail_on` for the changes it matches: cells by glob, and one op or every op."""

    cells: Text = "*"
    op: Text | None = None
    fail_on: Kinds
    because: Text


class Policy(_Strict):
    fail_on: Kinds = DEFAULT_FAIL_ON
    rules: Annotated[tuple[Rule, ...], Field(strict=False)] = ()


class Waiver(_Strict):
    """Lets changes of one kind pass, up to and with the day `expires`."""

    cells: Text
    op: Text | None = None
    kind: Kind
    because: Text
    expires: Day


def matches(entry: Rule | Waiver, change: Change) -> bool:
    """Whether the change is of the entry's cells and op; the kind is the caller's to compare."""
    return entry.op in (None, change.op) and glob(entry.cells)(change.cell) is not None


def load_policy(path: Path) -> Policy:
    """Raises UserError with all faults of the file, each with the place in it."""
    return _load(path, Policy, empty={})


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """Raises UserError with all faults of the file, each with the place in it."""
    return tuple(_load(path, list[Waiver], empty=[]))


def _load(path: Path, kind: type[T], empty: object) -> T:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; name a file that can be read") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}; mend the syntax") from None
    try:
        return TypeAdapter(kind).validate_python(empty if content is None else content)
    except ValidationError as error:
        raise UserError(*(f"{path}: {_where(fault['loc'])}: {fault['msg']}" for fault in error.errors())) from None


def _where(loc: tuple[int | str, ...]) -> str:
    """`rules[2].because`, as one would write it."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return path.removeprefix(".") or "the whole file"
