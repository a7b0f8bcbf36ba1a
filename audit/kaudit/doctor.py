"""`kaudit doctor`: can kaudit see here? Asked in the Python that has the engine; the answers as lines of text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from textwrap import wrap

import msgspec

from kaudit.asking import ask, unanswered
from kaudit.diagnosis import (
    TRIAL,
    Checked,
    Checking,
    CouldNotTell,
    Fault,
    FromDoctor,
    NotApplicable,
    Ok,
    Warn,
)

LIMIT = 180.0
"""Seconds for all checks: torch from a cold network disk and the profiler's start take some; a hang takes them all."""

_NAME, _STATE, _WIDTH = 13, 16, 80
"""Columns of a check's name, of its state, and of a line: the answers are pasted into issues."""

_decoder: msgspec.json.Decoder[FromDoctor] = msgspec.json.Decoder(FromDoctor)


def examine(python: str, device: str) -> list[Checked]:
    """The checks in their order; one that the process died of, or hung in, is a fault.

    Raises UserError where that Python cannot be asked.
    """
    what = "be examined"
    printed = ask(python, what, "kaudit_probes.doctor", "--device", device, limit=LIMIT)
    told = list(_told(printed.text))
    checked = [each for each in told if isinstance(each, Checked)]
    match told:
        case []:
            raise unanswered(python, what, printed.fault)
        case [*_, Checking(name)]:
            checked.append(_ended(name, f"the process that checks died of it: {printed}"))
        case _ if TRIAL not in {each.name for each in checked}:
            checked.append(_ended(TRIAL, f"the process that checks did not get to it: {printed}"))
    return checked


def _ended(name: str, found: str) -> Checked:
    return Checked(name, Fault(found, "report it, with this whole output"))


def _told(answers: bytes) -> Iterator[Checking | Checked]:
    """What is no word of the checks is left out: a Python may print at its start, before they have stdout."""
    for line in answers.splitlines(keepends=True):
        if line.endswith(b"\n"):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                yield _decoder.decode(line)


def blind_by(checked: Sequence[Checked]) -> list[str]:
    """Names of the checks for which kaudit is not to be trusted here: each fault, and the trial unless it is ok."""
    faults = [each.name for each in checked if isinstance(each.finding, Fault)]
    seen = any(each.name == TRIAL and isinstance(each.finding, Ok) for each in checked)
    return faults if seen or TRIAL in faults else [*faults, TRIAL]


def lines(checked: Sequence[Checked]) -> Iterator[str]:
    for each in checked:
        yield from _wrapped(f"{each.name:<{_NAME}}{_state(each):<{_STATE}}{each.finding.found}")
        match each.finding:
            case Warn(_, do) | Fault(_, do) | CouldNotTell(_, do):
                yield from _wrapped(f"{'':{_NAME + _STATE}}do: {do}")
            case Ok() | NotApplicable():
                pass


def summary(checked: Sequence[Checked]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(map(_state, checked)).items())


def _state(checked: Checked) -> str:
    return str(checked.finding.__struct_config__.tag)


def _wrapped(text: str) -> list[str]:
    indent = " " * (_NAME + _STATE)
    return wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
