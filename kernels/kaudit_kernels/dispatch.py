"""decide(): the fastest kernel that takes a problem, and why each faster one does not. Pure: no torch, no GPU.

Nothing is filtered before decide(): the list it is given is the whole list, in source order, and its answer names every
reason of every kernel turned down, not the first one found.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import Requirement, Unmet, features, sm


@dataclass(frozen=True)
class Kernel:
    """One way to serve an op.

    `requires`: without these the result would be wrong or the launch fail. `worth`: without these it runs, but the next
    kernel of the list is faster. `functions`: regular expressions, one for each device function that it launches, as a
    profiler names them (on a CPU the ATen op); empty for eager torch, which launches what torch pleases.
    """

    name: str
    requires: tuple[Requirement, ...]
    launch: Callable[..., Any] = field(repr=False)
    worth: tuple[Requirement, ...] = ()
    functions: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """As functions, of what it launches for some problems and not for others."""
    replays: bool = False
    """Of attention, the one op that looks at lengths: whether a CUDA graph of it holds for other lengths than those at
    its capture. vLLM's AttentionCGSupport says as much of a back end."""

    def unmet(self, problem: Problem) -> tuple[Unmet, ...]:
        """Every requirement that the problem does not meet, those of `worth` last."""
        denied = () if any(each.axis == features.name for each in self.requires) else (features.only(),)
        return tuple(
            found
            for worth, requirements in ((False, (*self.requires, *denied)), (True, self.worth))
            for requirement in requirements
            if (found := requirement.check(problem, worth))
        )

    def never(self, capability: int) -> tuple[Unmet, ...]:
        """What no problem meets on a device of this compute capability: 90 is 9.0, 0 is a CPU."""
        return tuple(
            found
            for worth, requirements in ((False, self.requires), (True, self.worth))
            for requirement in requirements
            if requirement.axis == sm.name and not requirement.beside
            if (found := requirement.against(capability, worth=worth))
        )


ANNOUNCER = "kaudit_kernels.dispatch"
"""The logger that says, at INFO, each decision with rejections; a record carries it as the attribute `decision`."""

Catalogue = Mapping[str, tuple[Kernel, ...]]
"""Per op, its kernels, fastest first."""


@dataclass(frozen=True)
class Rejected:
    """A kernel turned down, with all of its reasons."""

    kernel: Kernel
    unmet: tuple[Unmet, ...]

    def __str__(self) -> str:
        return f"{self.kernel.name} ({'; '.join(map(str, self.unmet))})"


@dataclass(frozen=True)
class Decision:
    """The kernel that serves an op, and every faster one with why it does not."""

    op: str
    chosen: Kernel
    rejected: tuple[Rejected, ...]

    def __str__(self) -> str:
        """`attention: flash_prefill, not split_kv_decode (page_size=8, needs a multiple of 16)`"""
        return ", ".join((f"{self.op}: {self.chosen.name}", *(f"not {each}" for each in self.rejected)))


class NoKernel(ValueError):
    """No kernel of the list takes the problem."""

    def __init__(self, op: str, rejected: tuple[Rejected, ...]) -> None:
        super().__init__(f"{op}: no kernel takes this problem: {', '.join(map(str, rejected))}")
        self.op = op
        self.rejected = rejected


def decide(op: str, problem: Problem, catalogue: Catalogue) -> Decision:
    """The first kernel of the op's list that meets all it requires and is worth its launch. Raises NoKernel."""
    rejected: list[Rejected] = []
    for kernel in catalogue[op]:
        if not (unmet := kernel.unmet(problem)):
            return Decision(op, kernel, tuple(rejected))
        rejected.append(Rejected(kernel, unmet))
    raise NoKernel(op, tuple(rejected))
