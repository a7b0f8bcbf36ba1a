"""Changes, a policy and waivers to a verdict: pure."""

from collections.abc import Iterable, Sequence
from datetime import date

from msgspec import Struct

from kaudit.change import Change, Kind
from kaudit.policy import Policy, Waiver, matches


class Verdict(Struct, frozen=True):
    """Every change is in one of the first three.

    `stale` waivers match no change any more: the loss is mended, or the baseline has accepted it. `expired` ones are
    past their day and waive nothing.
    """

    failing: tuple[Change, ...]
    waived: tuple[tuple[Change, Waiver], ...]
    tolerated: tuple[Change, ...]
    stale: tuple[Waiver, ...]
    expired: tuple[Waiver, ...]

    @property
    def passed(self) -> bool:
        return not self.failing


def verdict(changes: Iterable[Change], policy: Policy, waivers: Sequence[Waiver], today: date) -> Verdict:
    """Sort the changes into those that fail the gate, those waived, and those that the policy lets be.

    Only changes fail a gate: a problem that the baseline has too has been accepted with it.
    """
    holding = [waiver for waiver in waivers if today <= waiver.expires]
    failing, waived, tolerated = [], [], []
    used = set()
    for change in changes:
        covering = [n for n, waiver in enumerate(holding) if waiver.kind == change.kind and matches(waiver, change)]
        used.update(covering)
        if change.kind not in _fail_on(policy, change):
            tolerated.append(change)
        elif covering:
            waived.append((change, holding[covering[0]]))
        else:
            failing.append(change)
    return Verdict(
        tuple(failing),
        tuple(waived),
        tuple(tolerated),
        stale=tuple(waiver for n, waiver in enumerate(holding) if n not in used),
        expired=tuple(waiver for waiver in waivers if waiver.expires < today),
    )


def _fail_on(policy: Policy, change: Change) -> tuple[Kind, ...]:
    for rule in reversed(policy.rules):
        if matches(rule, change):
            return rule.fail_on
    return policy.fail_on
