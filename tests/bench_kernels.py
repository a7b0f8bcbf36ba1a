"""Times the reference engine's kernels on a GPU, each beside all that could serve its op there. Run as a script:

    python tests/bench_kernels.py [PART ...] [--op OP] [--only TEXT] [--json OUT]

The parts, and what is in them, are in bench_cases.py: all of them without a name. Three things are timed:

A case is an op of a cell, by every kernel of the op's list whose `requires` hold, whatever `worth` says: the catalogue
is wrong where the one that it chooses (*) is not the fastest, and then a line says ORDER. A line VARIANT says that a
kernel would be faster if it were launched otherwise. Beside attention its peers run in the same process: SDPA over
contiguous K and V, and FlashInfer over pages, where it is installed; beside a projection in fp8, cuBLAS in bf16.

A threshold is what a kernel's `worth` says of an axis. On both sides of it the kernel runs beside the next that takes
the cell. `pays`: it is the faster one; a cell that the catalogue has on the wrong side of the bound is marked WRONG.

A graph is a decode step captured as one, of which the widest gap between two kernels counts.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from bench_cases import PARTS, Case, Graph, Threshold
from bench_clock import Gaps, Stopwatch, gaps
from bench_measure import NOISE, Measured, Point, measured, points, problem_here, said
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_probes.doctor import card, nvml


def lines(case: Case, found: Measured) -> Iterator[str]:
    vocabulary = f"  vocabulary {case.vocabulary}" if case.op in ("logits_mask", "sample") else ""
    yield f"{case.op}  {case.cell}{vocabulary}"
    for each in (*found.kernels, *found.variants, *found.peers):
        mark = "*" if each.name == found.chosen else " "
        if each.seconds is None or each.rate is None:
            yield f"  {mark} {each.name:<44}{'-':>10}  {each.why}"
        else:
            yield f"  {mark} {each.name:<44}{each.rate:>10.3f} {case.unit}  {each.seconds * 1e6:>11.1f} us"
    ran = {each.name: each.seconds for each in found.kernels if each.seconds}
    if found.chosen not in ran:
        yield f"    FAILED: {found.chosen}, the kernel that is chosen, did not run"
        return
    best = min(ran, key=ran.__getitem__)
    if (slower := ran[found.chosen] / ran[best]) > NOISE:
        yield f"    ORDER: {best} is {slower - 1:.0%} faster than {found.chosen}, which is chosen"
    for each in found.variants:
        itself = ran.get(each.name.split()[0])
        if itself and each.seconds and itself > NOISE * each.seconds:
            yield f"    VARIANT: {each.name} is {itself / each.seconds - 1:.0%} faster than it is by itself"
    rate = next(each.rate for each in found.kernels if each.name == found.chosen)
    for what, wanted in (("bar", case.bar), ("aim", case.aim)):
        if wanted and rate:
            verb = "met" if rate >= wanted else "missed"
            yield f"    {what} {wanted} {case.unit}: {verb} by {abs(rate / wanted - 1):.1%}"


def told(threshold: Threshold, found: list[Point]) -> Iterator[str]:
    (kernel,) = (each for each in CATALOGUE[threshold.op] if each.name == threshold.kernel)
    bounds = "; ".join(str(needed) for needed in kernel.worth if needed.axis in threshold.axes)
    yield f"{threshold.op}  {kernel.name} is worth it if {bounds}"
    width = max(len(each.seen) for each in found)
    for each in found:
        if each.why:
            yield f"    {each.seen:<{width}}  {'-':>10}  {each.cell}  {each.why}"
            continue
        faster = each.next_seconds / each.seconds
        pays = "as fast" if 1 / NOISE <= faster <= NOISE else "pays" if faster > 1 else "does not pay"
        side = f"{'taken' if each.taken else 'not taken'}{', WRONG' if each.wrong else ''}"
        times = f"{each.seconds * 1e6:>8.1f} us, {each.next} {each.next_seconds * 1e6:>8.1f} us"
        yield f"    {each.seen:<{width}}  {times}  {faster:>5.2f} {pays}, {side}  {each.cell}"
    wrong, timed = (sum(each) for each in zip(*((each.wrong, not each.why) for each in found), strict=True))
    yield f"    {'BOUND' if wrong else 'bound'}: {wrong} of {timed} cells that were timed are on its wrong side"


def gap_lines(case: Graph, found: Gaps) -> Iterator[str]:
    yield f"graph  {case.cell}"
    yield f"    {found.kernels} kernels, {found.busy:.1f} us in them"
    verb = "met" if found.widest <= case.bar else "missed"
    yield f"    widest gap {found.widest:.2f} us, from {found.between[0][:60]} to {found.between[1][:60]}"
    yield f"    bar {case.bar} us: {verb}"


def report(case: Case | Threshold | Graph, watch: Stopwatch) -> tuple[list[str], object]:
    """What is printed of it, and what is kept."""
    match case:
        case Case():
            found = measured(case, watch)
            return [*lines(case, found)], found
        case Threshold():
            met = [*points(case, watch)]
            return [*told(case, met)], met
        case Graph():
            seen = gaps(problem_here(case.cell))
            return [*gap_lines(case, seen)], seen


def asked_for(case: Case | Threshold | Graph, op: str | None, text: str) -> bool:
    its_op = "" if isinstance(case, Graph) else case.op
    cells = case.cells if isinstance(case, Threshold) else (case.cell,)
    return op in (None, its_op) and any(text in cell for cell in cells)


def clocks() -> str:
    try:
        return nvml.clocks(*card.clocks()).found
    except Exception as error:
        return f"clocks cannot be read: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--op", choices=sorted(CATALOGUE))
    parser.add_argument("--only", default="", metavar="TEXT", help="what has a cell with it in its id")
    parser.add_argument("--json", type=Path, metavar="OUT")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        parser.error("there is no GPU; run it on one")
    began = time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}; before: {clocks()}")
    watch = Stopwatch()
    results = []
    for part in asked.parts or PARTS:
        at = time.perf_counter()
        for case in PARTS[part]:
            if not asked_for(case, asked.op, asked.only):
                continue
            try:
                printed, found = report(case, watch)
            except Exception as error:
                print(f"{case}\n    FAILED: {said(error)}", flush=True)
                continue
            print(*printed, sep="\n", flush=True)
            results.append({"part": part, "case": vars(case), "found": found})
            torch.cuda.empty_cache()
        print(f"-- {part}: {time.perf_counter() - at:.1f} s", flush=True)
    print(f"after {time.perf_counter() - began:.0f} s: {clocks()}")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1, default=vars))


if __name__ == "__main__":
    main()
