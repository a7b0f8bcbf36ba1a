"""Times the reference engine's kernels on a GPU, each beside all that could serve its op there. Run as a script:

    python tests/bench_kernels.py [--op OP] [--only TEXT] [--json OUT]

Of each case every kernel of the op's list is timed whose `requires` hold, whatever `worth` says: the catalogue is
wrong where the one that it chooses is not the fastest, and then a line says ORDER. Beside attention its peers run in
the same process: SDPA over contiguous K and V, and FlashInfer over pages, where it is installed.

A figure is the median over iterations, each between two CUDA events. Before each the L2 is filled by reading another
256 MiB (written lines would have to be written back on the op's time), and the GPU waits until all launches of the op
are queued, so that a launch gap is none of ours. The first two runs, which compile and tune, are not counted.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bench_peers import peers
from kaudit.cell import Cell
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.engine import ARGUMENTS, Outputs, device_facts, ops
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem
from kaudit_probes.doctor import card, nvml
from kaudit_probes.engines import Span
from kaudit_probes.engines.reference import problem_of

L2_FILLER = 256 << 20
SECONDS = 0.08
"""Of GPU time for the iterations of one figure, within the bounds of ITERATIONS."""
ITERATIONS = (5, 60)
NOISE = 1.03
"""A kernel that is faster than the chosen one by less is as fast."""

Call = Callable[[Span], object]


@dataclass(frozen=True)
class Case:
    """`bar` and `aim` are in `unit`: of attention K and V read once (TB/s) or the products of the causal half
    (TFLOP/s), of other ops what they read and write, also as a share of a copy of as many bytes (`of copy`)."""

    op: str
    cell: str
    unit: str
    bar: float | None = None
    aim: float | None = None
    vocabulary: int = 32_768


_PREFILL = "prefill/bf16/kv-bf16/h32x8x128/{}/causal/none/plain/b4q4096k4096"
_DECODE = "decode/bf16/kv-{}/h32x8x128/paged16/causal/none/plain/b{}q1k{}"
_ROWS = "prefill/bf16/kv-{}/h32x8x128/paged16/causal/neox/plain/b1q8192k8192"
_TOKENS = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/grammar/b{}q1k1024"

CASES = (
    Case("attention", _PREFILL.format("contiguous"), "TFLOP/s", 450, 573),
    Case("attention", _PREFILL.format("paged16"), "TFLOP/s"),
    Case("attention", _PREFILL.format("paged128"), "TFLOP/s"),
    Case("attention", _DECODE.format("bf16", 64, 4096), "TB/s", 3.7, 4.0),
    Case("attention", _DECODE.format("fp8_e4m3", 64, 4096), "TB/s", 3.0, 3.4),
    Case("attention", _DECODE.format("int8", 64, 4096), "TB/s"),
    Case("attention", _DECODE.format("bf16", 1, 131072), "TB/s", 3.2),
    Case("attention", _DECODE.format("bf16", 8, 4096), "TB/s"),
    Case("attention", _DECODE.format("bf16", 16, 4096).replace("plain", "prefix_share"), "TB/s"),
    Case("rms_norm", _ROWS.format("bf16"), "of copy"),
    Case("add_rms_norm", _ROWS.format("bf16"), "of copy", 0.85),
    Case("silu_mul", _ROWS.format("bf16"), "of copy", 0.85),
    Case("rope_kv_write", _ROWS.format("bf16"), "of copy", 0.85),
    Case("rope_kv_write", _ROWS.format("fp8_e4m3"), "of copy"),
    *(
        Case(op, _TOKENS.format(batch), "TB/s")
        for op in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
        for batch in (1, 16, 64)
    ),
    Case("logits_mask", _TOKENS.format(64), "of copy", vocabulary=131_072),
    Case("sample", _TOKENS.format(64), "TB/s", vocabulary=131_072),
)


class Stopwatch:
    """A Span that times what it goes around; see the top."""

    def __init__(self) -> None:
        self._filler = torch.zeros(L2_FILLER // 4, dtype=torch.int32, device="cuda")
        self._events: defaultdict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = defaultdict(list)
        self._ahead = 0

    @contextmanager
    def _span(self, op: str) -> Iterator[None]:
        self._filler.amax()
        torch.cuda._sleep(self._ahead)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._events[op].append((start, end))

    def medians(self, call: Call) -> dict[str, float]:
        """Seconds of each op that the call runs."""
        self._ahead = 0
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            call(self._span)
            queued = time.perf_counter() - began
            torch.cuda.synchronize()
            took = time.perf_counter() - began
        self._ahead = int(min(queued * 1.5, 0.05) * 2e9)  # cycles, at some 2 GHz
        self._events.clear()
        least, most = ITERATIONS
        for _ in range(max(least, min(most, int(SECONDS / took)))):
            call(self._span)
        torch.cuda.synchronize()
        return {
            op: statistics.median(start.elapsed_time(end) for start, end in pairs) / 1e3
            for op, pairs in self._events.items()
        }


def arguments_of(op: str, problem: Problem) -> tuple[Inputs, tuple[object, ...]]:
    """What the op is launched with, the ops before it run as they are dispatched."""
    inputs = make_inputs(problem, "cuda", seed=0)
    done: Outputs = {}
    for before in ops(problem):
        if before == op:
            break
        done[before] = decide(before, problem, CATALOGUE).chosen.launch(*ARGUMENTS[before](inputs, done))
    return inputs, ARGUMENTS[op](inputs, done)


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
    return sum(map(_bytes, arguments)) + output.nbytes


def _bytes(argument: object) -> int:
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
    """A kernel or a peer; `why` it was not timed, where it was not."""

    name: str
    seconds: float | None = None
    rate: float | None = None
    """In the unit of the case."""
    why: str = ""


def measured(case: Case, watch: Stopwatch) -> tuple[str, list[Timed], list[Timed]]:
    """The kernel that is chosen; all kernels of the op, in the order of the catalogue; the peers."""
    cell = Cell.parse(case.cell)
    problem = replace(problem_of(cell, *device_facts("cuda")), vocabulary=case.vocabulary)
    inputs, arguments = arguments_of(case.op, problem)
    chosen = decide(case.op, problem, CATALOGUE).chosen
    done = work(case, problem, inputs, arguments, chosen.launch(*arguments))
    most = done / copied(watch, done) if case.unit == "of copy" else 1e12

    def launching(launch: Callable[..., object]) -> Call:
        def call(span: Span) -> None:
            with span(case.op):
                launch(*arguments)

        return call

    def timed(name: str, call: Call) -> Iterator[Timed]:
        try:
            for op, seconds in watch.medians(call).items():
                yield Timed(name + op.removeprefix(case.op), seconds, done / seconds / most)
        except Exception as error:  # of a peer, or of a kernel that was never tried on this GPU: the others still count
            yield Timed(name, why=_said(error))

    ours: list[Timed] = []
    for kernel in CATALOGUE[case.op]:
        if denied := [str(unmet) for unmet in kernel.unmet(problem) if not unmet.worth]:
            ours.append(Timed(kernel.name, why="; ".join(denied)))
        else:
            ours += timed(kernel.name, launching(kernel.launch))
    theirs: list[Timed] = []
    if case.op == "attention":
        for name, prepare in peers(cell):
            try:
                theirs += timed(name, prepare())
            except Exception as error:
                theirs.append(Timed(name, why=_said(error)))
    return chosen.name, ours, theirs


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:150]}"


def lines(case: Case, chosen: str, ours: list[Timed], theirs: list[Timed]) -> Iterator[str]:
    yield f"{case.op}  {case.cell}" + (f"  vocabulary {case.vocabulary}" if "logits" in case.op else "")
    for each in (*ours, *theirs):
        mark = "*" if each.name == chosen and each in ours else " "
        if each.seconds is None or each.rate is None:
            yield f"  {mark} {each.name:<34}{'-':>10}  {each.why}"
        else:
            yield f"  {mark} {each.name:<34}{each.rate:>10.3f} {case.unit}  {each.seconds * 1e6:>11.1f} us"
    ran = {each.name: each for each in ours if each.seconds is not None}
    if chosen not in ran:
        yield f"    FAILED: {chosen}, the kernel that is chosen, did not run"
        return
    taken, best = ran[chosen], min(ran.values(), key=lambda each: each.seconds or 0)
    assert taken.seconds and taken.rate and best.seconds
    if taken.seconds > NOISE * best.seconds:
        yield f"    ORDER: {best.name} is {taken.seconds / best.seconds - 1:.0%} faster than {chosen}, which is chosen"
    for what, wanted in (("bar", case.bar), ("aim", case.aim)):
        if wanted:
            verb = "met" if taken.rate >= wanted else "missed"
            yield f"    {what} {wanted} {case.unit}: {verb} by {abs(taken.rate / wanted - 1):.1%}"


def clocks() -> str:
    try:
        return nvml.clocks(*card.clocks()).found
    except Exception as error:
        return f"clocks cannot be read: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", choices=sorted({case.op for case in CASES}))
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose cell has it in its id")
    parser.add_argument("--json", type=Path, metavar="OUT")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU; run it on one")
    began = time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}; before: {clocks()}")
    watch = Stopwatch()
    results = []
    for case in CASES:
        if asked.op in (None, case.op) and asked.only in case.cell:
            try:
                chosen, ours, theirs = measured(case, watch)
            except Exception as error:
                print(f"{case.op}  {case.cell}\n    FAILED: {type(error).__name__}: {error}", flush=True)
                continue
            print(*lines(case, chosen, ours, theirs), sep="\n", flush=True)
            results.append(
                {**vars(case), "chosen": chosen, "kernels": [*map(vars, ours)], "peers": [*map(vars, theirs)]}
            )
            torch.cuda.empty_cache()
    print(f"after {time.perf_counter() - began:.0f} s: {clocks()}")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
