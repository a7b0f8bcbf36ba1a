"""What a diff or a gate comes to: the one value that every format is made from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from kaudit.change import Change, Kind
from kaudit.expect import Miss
from kaudit.explain import Rule, explain
from kaudit.gate import Verdict
from kaudit.policy import DEFAULT_FAIL_ON, Waiver
from kaudit.table import Table

Judgement = Literal["failing", "waived", "tolerated", "changed"]
Severity = Literal["error", "warning", "note", "none"]

QUIET: tuple[Kind, ...] = ("rerouted", "relaunched", "reason_changed", "added", "faster", "improved", "recovered")
"""Kinds that nobody is told of unless the policy fails on them: nothing is lost."""


class Judged(Struct, frozen=True):
    """A change, and what the gate makes of it: `changed` where there is no gate. `waiver`: the one that waives it."""

    change: Change
    judgement: Judgement
    waiver: Waiver | None = None

    @property
    def severity(self) -> Severity:
        if self.judgement == "failing":
            return "error"
        if self.change.kind in QUIET:
            return "none"
        return "warning" if self.judgement == "changed" and self.change.kind in DEFAULT_FAIL_ON else "note"


class Report(Struct, frozen=True):
    """`file` is the path of the table `after`, as the user named it; `context` says what else differs between the two.

    `verdict` is None for a diff, which judges nothing. `unmet` is where `after` does not meet expectations. Of each
    kind, the formats for people list at most `most` cells.
    """

    before: Table
    after: Table
    file: Path
    context: tuple[str, ...]
    changes: tuple[Change, ...]
    most: int
    verdict: Verdict | None = None
    unmet: tuple[Miss, ...] = ()

    @property
    def passed(self) -> bool | None:
        """None for a diff."""
        return None if self.verdict is None else self.verdict.passed and not self.unmet

    @property
    def told(self) -> tuple[Change, ...]:
        """The changes to tell in full: those that fail the gate; for a diff, all."""
        return self.changes if self.verdict is None else self.verdict.failing

    def judged(self) -> Iterator[Judged]:
        """Every change once: failing, waived, tolerated, each in table order."""
        if self.verdict is None:
            yield from (Judged(change, "changed") for change in self.changes)
            return
        yield from (Judged(change, "failing") for change in self.verdict.failing)
        yield from (Judged(change, "waived", waiver) for change, waiver in self.verdict.waived)
        yield from (Judged(change, "tolerated") for change in self.verdict.tolerated)

    def rules(self) -> dict[Kind, tuple[Rule, ...]]:
        """What the told changes of each kind share. Raises UserError where a cell's id is none."""
        return explain(self.told, self.before, self.after)

    def lines_of_file(self) -> dict[tuple[str, str], int]:
        """Cell and op to the line of `file` that holds the row; a cell alone, as (cell, "*"), to its first."""
        places: dict[tuple[str, str], int] = {}
        for number, (cell, op) in enumerate(self.after.rows, start=2):  # line 1 is the header
            places[cell, op] = number
            places.setdefault((cell, "*"), number)
        return places
