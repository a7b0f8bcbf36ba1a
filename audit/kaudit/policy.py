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
from typing import Annotated

from pydantic import BeforeValidator, RootModel

from kaudit.change import Change, Kind
from kaudit.errors import told_in
from kaudit.globs import glob
from kaudit.strict_yaml import read_model
from kaudit.strict_yaml.types import Many, Strict, Text

DEFAULT_FAIL_ON: tuple[Kind, ...] = (
    "wrong_result",
    "crashed",
    "hung",
    "contradiction",
    "silent_fallback",
    "unseen",
    "predicted_fallback",  # only two tables of predictions have it: without it, no gate on them could fail
)


def _day(value: object) -> object:
    """Quoted or not, a date comes as text: our YAML guesses no types beyond JSON's."""
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f'"{value}" is no day; write one as in 2026-12-31') from None


Day = Annotated[date, BeforeValidator(_day)]


class Rule(Strict):
    """Replaces `fail_on` for the changes it matches: cells by glob, and one op or every op."""

    cells: Text = "*"
    op: Text | None = None
    fail_on: Many[Kind]
    because: Text


class Policy(Strict):
    fail_on: Many[Kind] = DEFAULT_FAIL_ON
    rules: Many[Rule] = ()

    @property
    def kinds(self) -> set[Kind]:
        """All that it may fail on."""
        return {*self.fail_on, *(kind for rule in self.rules for kind in rule.fail_on)}


class Waiver(Strict):
    """Lets changes of one kind pass, up to and with the day `expires`."""

    cells: Text
    op: Text | None = None
    kind: Kind
    because: Text
    expires: Day


class _Waivers(RootModel[Many[Waiver]]):
    root: Many[Waiver] = ()


def matches(entry: Rule | Waiver, change: Change) -> bool:
    """Whether the change is of the entry's cells and op; the kind is the caller's to compare."""
    return entry.op in (None, change.op) and glob(entry.cells)(change.cell) is not None


@told_in("docs/gate.md")
def load_policy(path: Path) -> Policy:
    """Raises UserError with all faults of the file, each with the place in it."""
    return read_model(path, Policy)


@told_in("docs/gate.md")
def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """Raises UserError with all faults of the file, each with the place in it."""
    return read_model(path, _Waivers).root
