"""Outcomes taken apart for the report page: what many of them share is listed once, all else are numbers of it."""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from kaudit.launches import short
from kaudit.observation import Chosen, Kernel, Outcome, Predicted, Ran, Rejection
from kaudit.transition import describe

Fields = dict[str, object]
T = TypeVar("T", bound=Hashable)


class Numbered(dict[T, int], Generic[T]):
    """Numbers for values, in order of first appearance."""

    def __missing__(self, value: T) -> int:
        number = self[value] = len(self)
        return number


Frame = tuple[str | None, ...]
Function = tuple[object, ...]
"""What the launches of a kernel share: name, family, role, arch, block, registers, shared memory."""


def outcome_parts(outcomes: Sequence[Outcome]) -> tuple[Fields, Fields]:
    """What a list of rows shows of each outcome, its frame and count of launches; and the evidence, for stories.

    A frame is why it did not run, or null; then path, claimed path, graph asked for and got, numerics; that of a
    prediction ends with its path. A kernel is [function, count, grid, whether in a graph].
    """
    frames: Numbered[Frame] = Numbered()
    kernels: Numbered[Kernel] = Numbered()
    rejections: Numbered[Rejection] = Numbered()
    functions: Numbered[Function] = Numbered()
    names: Numbered[str] = Numbered()
    heads = {
        "frame": [frames[_frame(outcome)] for outcome in outcomes],
        "launches": [outcome.launches if isinstance(outcome, Ran) else None for outcome in outcomes],
    }
    evidence = {
        "outcomes": [
            (
                [kernels[one] for one in (outcome.kernels if isinstance(outcome, Ran) else ())],
                [rejections[one] for one in (outcome.rejections if isinstance(outcome, Chosen) else ())],
            )
            for outcome in outcomes
        ],
        "kernels": [(functions[_function(one, names)], one.count, one.grid, int(one.graph)) for one in kernels],
        "functions": list(functions),
        "names": [(short(name), name) for name in names],
        "rejections": [(no.path, no.source, [str(reason) for reason in no.reasons]) for no in rejections],
    }
    return heads | {"frames": list(frames)}, evidence


def _frame(outcome: Outcome) -> Frame:
    match outcome:
        case Ran() as ran:
            return None, ran.path, ran.claimed, ran.graph_asked, ran.graph_got, ran.numerics
        case Predicted(path):
            return None, path
        case stopped:
            return (describe(stopped),)


def _function(kernel: Kernel, names: Numbered[str]) -> Function:
    facts = (kernel.family, kernel.role, kernel.arch, kernel.block, kernel.registers, kernel.shared_memory)
    return names[kernel.name], *facts
