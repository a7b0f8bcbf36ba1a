"""The figures of bench_kernels.py: of a case every kernel that can serve it, of a threshold both sides of its bound."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from bench_cases import Case, Threshold
from bench_clock import Call, Stopwatch
from bench_peers import peers
from kaudit.cell import Cell
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel, decide
from kaudit_kernels.engine import ARGUMENTS, Outputs, device_facts, ops
from kaudit_kernels.fp8 import Fp8Weight
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem
from kaudit_probes.engines import Span
from kaudit_probes.engines.reference import problem_of

NOISE = 1.03
"""What is faster by less is as fast."""


def arguments_of(op: str, problem: Problem) -> tuple[Inputs, tuple[object, ...]]:
    """What the op is launched with, the ops before it run as they are dispatched."""
    inputs = make_inputs(problem, "cuda", seed=0)
    done: Outputs = {}
    for before in ops(problem):
        if before == op:
            break
        done[before] = decide(before, problem, CATALOGUE).chosen.launch(*ARGUMENTS[before](inputs, done))
    return inputs, ARGUMENTS[op](inputs, done)


def problem_here(cell: str, vocabulary: int = Problem.vocabulary) -> Problem:
    return replace(problem_of(Cell.parse(cell), *device_facts("cuda")), vocabulary=vocabulary)


def work(case: Case, problem: Problem, inputs: Inputs, arguments: tuple[object, ...], output: Tensor) -> float:
    """Of one run: floating-point operations where the unit is TFLOP/s, else bytes."""
    per_token = problem.kv_heads * (problem.head_dim + problem.v_head_dim) * inputs.cache.k.element_size()
    match case.op:
        case "attention" if case.unit == "TFLOP/s":
            pairs = sum(q_len * kv_len for q_len, kv_len in zip(problem.q_lens, problem.kv_lens, strict=True)) / 2
            return 2 * pairs * problem.q_heads * (problem.head_dim + problem.v_head_dim)
        case "attention":
            return sum(problem.kv_lens) * per_token
        case "rope_kv_write":
            angles = inputs.cosines.nbytes + inputs.sines.nbytes
            return _bytes(arguments[0]) + output.nbytes + angles + problem.tokens * per_token
        case _ if case.unit == "TFLOP/s":
            x = arguments[0]
            assert isinstance(x, Tensor)
            return 2 * x.numel() * output.shape[1]
    return sum(map(_bytes, arguments)) + output.nbytes


def _bytes(argument: object) -> int:
    if isinstance(argument, Fp8Weight):
        return argument.values.nbytes + argument.scales.nbytes
    return argument.nbytes if isinstance(argument, Tensor) else 0


def copied(watch: Stopwatch, moved: float) -> float:
    """Seconds that a copy takes which reads and writes so many bytes together."""
    source, target = torch.zeros(2, int(moved) // 2, dtype=torch.uint8, device="cuda")

    def call(span: Span) -> None:
        with span("copy"):
            target.copy_(source)

    return watch.medians(call)["copy"]


@dataclass(frozen=True)
class Timed:
    """A kernel, a variant of one or a peer; `why` it was not timed, where it was not."""

    name: str
    seconds: float | None = None
    rate: float | None = None
    """In the unit of the case."""
    why: str = ""


@dataclass(frozen=True)
class Measured:
    """Of a case."""

    chosen: str
    kernels: list[Timed]
    """All of the op, in the order of the catalogue."""
    variants: list[Timed]
    peers: list[Timed]


def measured(case: Case, watch: Stopwatch) -> Measured:
    problem = problem_here(case.cell, case.vocabulary)
    inputs, arguments = arguments_of(case.op, problem)
    chosen = decide(case.op, problem, CATALOGUE).chosen
    done = work(case, problem, inputs, arguments, chosen.launch(*arguments))
    most = done / copied(watch, done) if case.unit == "of copy" else 1e12

    def timed(name: str, prepare: Callable[[], Call]) -> Iterator[Timed]:
        try:
            for op, seconds in watch.medians(prepare()).items():
                yield Timed(name + op.removeprefix(case.op), seconds, done / seconds / most)
        except Exception as error:  # of a peer, or of a kernel that was never tried on this GPU: the others still count
            yield Timed(name, why=said(error))

    def launched(name: str, kernel: Kernel, **options: object) -> Iterator[Timed]:
        if denied := _denied(kernel, problem):
            yield Timed(name, why=denied)
        else:
            yield from timed(name, lambda: partial(_under, case.op, partial(kernel.launch, *arguments, **options)))

    kernels = {kernel.name: kernel for kernel in CATALOGUE[case.op]}
    return Measured(
        chosen.name,
        [each for name, kernel in kernels.items() for each in launched(name, kernel)],
        [
            each
            for variant in case.variants
            for each in launched(f"{variant.kernel} {variant.what}", kernels[variant.kernel], **variant.options)
        ],
        [each for name, prepare in peers(case.op, Cell.parse(case.cell), arguments) for each in timed(name, prepare)],
    )


def _under(op: str, launch: Callable[[], object], span: Span) -> None:
    with span(op):
        launch()


def _denied(kernel: Kernel, problem: Problem) -> str:
    return "; ".join(str(unmet) for unmet in kernel.unmet(problem) if not unmet.worth)


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:150]}"


@dataclass(frozen=True)
class Point:
    """A cell of a threshold."""

    cell: str
    seen: str
    """The value of each axis."""
    taken: bool
    """The catalogue takes the kernel there, as far as `worth` goes."""
    next: str = ""
    """The kernel that would serve the cell instead."""
    seconds: float = 0.0
    next_seconds: float = 0.0
    why: str = ""
    """It was not timed."""

    @property
    def wrong(self) -> bool:
        """The catalogue has the slower one of the two there, by more than noise."""
        slow, fast = (self.seconds, self.next_seconds) if self.taken else (self.next_seconds, self.seconds)
        return slow > NOISE * fast


def points(threshold: Threshold, watch: Stopwatch) -> Iterator[Point]:
    kernels = CATALOGUE[threshold.op]
    place = [kernel.name for kernel in kernels].index(threshold.kernel)
    kernel = kernels[place]
    for cell, vocabulary in product(threshold.cells, threshold.vocabularies):
        problem = problem_here(cell, vocabulary)
        seen = " ".join(f"{axis}={getattr(problem, axis)}" for axis in threshold.axes)
        taken = not kernel.unmet(problem)
        if denied := _denied(kernel, problem):
            yield Point(cell, seen, taken, why=denied)
            continue
        after = decide(threshold.op, problem, {threshold.op: kernels[place + 1 :]}).chosen
        _, arguments = arguments_of(threshold.op, problem)
        try:
            own, other = (
                watch.medians(partial(_under, threshold.op, partial(each.launch, *arguments)))[threshold.op]
                for each in (kernel, after)
            )
        except Exception as error:  # of a kernel that was never tried on this GPU: the others still count
            yield Point(cell, seen, taken, after.name, why=said(error))
        else:
            yield Point(cell, seen, taken, after.name, own, other)
