"""Whether what an op computed is what the textbook says: `kaudit sweep --numerics`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard

from msgspec.structs import replace
from torch import Tensor

from kaudit.errors import UserError
from kaudit.observation import OUT_OF_MEMORY, Numerics, Ran, Row
from kaudit.transition import describe
from kaudit.wire import Measure, Numbers
from kaudit_probes.failures import crash
from kaudit_probes.figures import LOG_SUM_EXP, figures, lse_error, tolerance
from kaudit_probes.hints import hint
from kaudit_probes.ignored import each_off, ignored
from kaudit_probes.oracle import Attention
from kaudit_probes.parity import parity


@dataclass(frozen=True)
class Computed:
    """What an op computed, and what tells what it should have. An op with several outputs has one of these for each.

    got: [rows, heads, width], or [rows, width], as the engine gave it; of attention the tokens of all requests, one
    request after another. `textbook` is called once the engine is done, and comes to the same shape.
    lse: [rows, heads], the natural log-sum-exp, where the engine gives one.
    stored: what the tolerance goes by, where that is not the dtype of `got`: the kv_dtype of a cache that was
    dequantised, the dtype of fp8 products, `drawn` of tokens (see draws.py).
    without: by feature, what should come out where it is off. Those of an Attention are known.
    meaning: the hint, if it is wrong: where that can be only one thing.
    step: of the last op of a step, what parity() takes: the engine's hidden states, and those of a textbook that ran
    the whole step by itself.
    """

    op: str
    got: Tensor
    textbook: Attention | Callable[[], Tensor]
    lse: Tensor | None = None
    stored: str = ""
    without: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)
    meaning: str = ""
    step: Callable[[], tuple[Tensor, Tensor]] | None = None


class Checkable(Protocol):
    """A call whose results can be checked."""

    def numbers(self) -> Iterable[Computed]:
        """Run every op once more, over outputs that are poisoned where that can be done, and hand over what came out.

        Ops that it says nothing of stay unchecked.
        """
        ...


def checkable(call: object) -> TypeGuard[Checkable]:
    return hasattr(call, "numbers")


@dataclass(frozen=True)
class Checked:
    """The verdict on one op, and the figures of its worst output. `ignored`: a feature that had no effect on it."""

    verdict: Numerics
    numbers: Numbers
    ignored: str = ""


_SEVERITY: Mapping[Numerics, int] = {"ok": 0, "unchecked": 1, "wrong": 2, "unwritten": 3}


def check(computed: Iterable[Computed]) -> dict[str, Checked] | None:
    """By op, the worst of its outputs. None where the oracle finds no memory."""
    found: dict[str, Checked] = {}
    for one in computed:
        try:
            checked = compare(one)
        except UserError:
            raise
        except Exception as error:
            failed = crash(error)
            if failed == OUT_OF_MEMORY:
                return None
            checked = Checked("unchecked", Numbers(hint=f"the textbook {describe(failed)}"))
        found[one.op] = max(found.get(one.op, checked), checked, key=_badness)
    return found


def unknown(ops: Iterable[str], why: str) -> dict[str, Checked]:
    return dict.fromkeys(ops, Checked("unchecked", Numbers(hint=why)))


def with_numbers(
    rows: Iterable[Row], measures: Sequence[Measure], checked: Mapping[str, Checked] | None
) -> tuple[list[Row], list[Measure]]:
    """The rows of a cell, all of which ran, with their verdicts, and its measures with their figures.

    `checked` is None where there was no memory for that.
    """
    if checked is None:
        checked = unknown((measure.op for measure in measures), "no memory to check it")
    told = []
    for row in rows:
        match row.outcome:
            case Ran() as ran if row.op in checked:
                found = checked[row.op]
                told.append(replace(row, outcome=replace(ran, numerics=found.verdict, ignored=found.ignored)))
            case _:
                told.append(row)
    numbers = {op: one.numbers for op, one in checked.items()}
    return told, [replace(measure, numbers=numbers.get(measure.op)) for measure in measures]


def compare(computed: Computed) -> Checked:
    """One output against the textbook. What is no number is never right; where the textbook comes to none itself, as
    its inputs were none, nothing is known: unchecked. Raises UserError where the two are of different shapes."""
    textbook, wanted_lse = computed.textbook, None
    if isinstance(textbook, Attention):
        wanted, wanted_lse = textbook.compute()
    else:
        wanted = textbook()
    _of_one_shape(f"the output of {computed.op}", computed.got, wanted)
    allowed = tolerance(computed.op, computed.stored or computed.got.dtype)
    numbers, wrong_lse = figures(computed.got, wanted, allowed), False
    if computed.step is not None:
        numbers = replace(numbers, **_parity(computed.step))
    if computed.lse is not None and wanted_lse is not None:
        _of_one_shape(f"the log-sum-exp of {computed.op}", computed.lse, wanted_lse)
        off = lse_error(computed.lse, wanted_lse)
        wrong_lse = off is None or off > tolerance(LOG_SUM_EXP, computed.got.dtype)
        numbers = replace(numbers, lse_error=off)
    if numbers.unwritten:
        return Checked("unwritten", numbers)
    if numbers.nonfinite or wrong_lse or (numbers.error or 0.0) > allowed:
        without = "" if computed.got.isnan().any() else _ignored(computed, allowed)
        if isinstance(textbook, Attention):
            numbers = replace(numbers, hint=_hint(textbook, computed.got, numbers, wrong_lse))
        else:
            numbers = replace(numbers, hint=f"as if {without} were not applied" if without else computed.meaning)
        return Checked("wrong", numbers, without)
    return Checked("unchecked" if wanted.isnan().any() else "ok", numbers)


def _of_one_shape(what: str, got: Tensor, wanted: Tensor) -> None:
    if got.shape != wanted.shape:
        shapes = f"{tuple(got.shape)}, the textbook of its inputs {tuple(wanted.shape)}"
        raise UserError(f"numbers(): {what} is {shapes}; mend the adapter")


def _parity(step: Callable[[], tuple[Tensor, Tensor]]) -> dict[str, float]:
    """A verdict on the op does not hang on whether there is memory to run the whole step."""
    try:
        return parity(*step())
    except Exception:
        return {}


def _hint(textbook: Attention, got: Tensor, numbers: Numbers, wrong_lse: bool) -> str:
    """A verdict does not hang on whether there is memory to look for its cause."""
    try:
        return hint(textbook, got, numbers, wrong_lse)
    except Exception as error:
        return f"no cause could be looked for: {describe(crash(error))}"


def _ignored(computed: Computed, allowed: float) -> str:
    """As with the hint: without memory to look for it, nothing is known of it."""
    of_attention = each_off(computed.textbook) if isinstance(computed.textbook, Attention) else ()
    try:
        return ignored((*of_attention, *computed.without.items()), computed.got, allowed)
    except Exception:
        return ""


def _badness(checked: Checked) -> tuple[int, float]:
    """A tolerance of 0 is either kept or infinitely overrun."""
    error, allowed = checked.numbers.error or 0.0, checked.numbers.tolerance or 0.0
    return _SEVERITY[checked.verdict], error / allowed if allowed else math.inf * error if error else 0.0
