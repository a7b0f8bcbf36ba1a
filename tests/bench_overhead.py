"""Times a sweep beside a bare loop over the same cells, each in processes of its own. Run as a script:

    python tests/bench_overhead.py [--jobs 1 4] [--devices 0 all] [--many 16] [--cells 10000]

The bare loop is what one would write by hand: prepare a cell, run it, synchronize. `cold` is a process's first pass
over the cells, in which libraries build their plans; `warm` a later one: of a sweep, one more that `--repeat` adds.
Both begin when the process can take cells.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec.structs import replace as with_

from kaudit.cell import Cell
from kaudit.child import probe_command
from kaudit.gpus import chosen
from kaudit.matrix import expand, load
from kaudit.runs import Checks
from kaudit.sweep import SweepRequest, sweep

MATRIX = Path(__file__).with_suffix(".yaml")
PASSES = 4


class Clock:
    """A Progress that keeps when how many cells were finished. Seconds count from its making."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.at: list[tuple[float, int]] = []

    def begin(self, done: int, total: int) -> None:
        self.at.append((self.now(), done))
        self.note(f"{total} cells")

    def opened(self, cell: str) -> None:
        pass

    def finished(self, done: int) -> None:
        self.at.append((self.now(), done))

    def now(self) -> float:
        return time.perf_counter() - self.started

    def when(self, done: int) -> float:
        """Seconds at which so many cells were finished."""
        return next(seconds for seconds, count in self.at if count >= done)

    def note(self, text: str) -> None:
        print(f"  {self.now():6.1f} s: {text}", file=sys.stderr)


def cells_of(count: int, dtype: str | None = None) -> Sequence[Cell]:
    """The matrix, then as many again in other lengths until there are `count`: each cell is its own shape."""
    small = [cell for cell in expand(load(str(MATRIX))).cells if dtype in (None, cell.dtype)]
    found = {cell.id: cell for cell in small}
    step = 0
    while len(found) < count:
        step += 1
        for cell in small:
            longer = with_(cell.shape, q_len=cell.shape.q_len + step, kv_len=cell.shape.kv_len + step)
            grown = with_(cell, shape=longer if cell.phase == "prefill" else with_(longer, q_len=1))
            found.setdefault(grown.id, grown)
    return list(found.values())[:count]


def bare(device: str) -> None:
    """In a process of its own: prints the seconds of each pass."""
    import torch

    from kaudit_probes.engines.sdpa import SdpaEngine

    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    engine = SdpaEngine("cuda" if on_gpu else "cpu")
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    cells = cells_of(540)
    seconds = []
    for _ in range(PASSES):
        start = time.perf_counter()
        for cell in cells:
            engine.prepare(cell).run(nullcontext)
            synchronize()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


def swept(cells: Sequence[Cell], device: str, jobs: int, repeat: int, gpus: tuple[str, ...] = ()) -> Clock:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        command = probe_command(sys.executable, "sdpa", device)
        out = Path(folder, "table.jsonl")
        checks = Checks(repeat=repeat)
        sweep(cells, (), SweepRequest(command, "overhead", "0", out, checks=checks, gpus=gpus, jobs=jobs), clock)
    return clock


def resident(process: str) -> int:
    """MiB; 0 where the process is gone."""
    try:
        pages = int(Path("/proc", process, "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def probes() -> Iterator[str]:
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and b"kaudit_probes" in (process / "cmdline").read_bytes():
                yield process.name


@contextmanager
def memory(path: Path) -> Iterator[None]:
    """Resident MiB of this process and of all probes together, each second, into a CSV."""
    stop, rows = threading.Event(), []

    def watch() -> None:
        start = time.perf_counter()
        while not stop.wait(1.0):
            rows.append((round(time.perf_counter() - start, 1), resident("self"), sum(map(resident, probes()))))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("second", "sweep_mib", "probes_mib"), *rows])


def beside_bare(cells: Sequence[Cell], device: str, each: Sequence[int]) -> None:
    itself = [sys.executable, __file__, "--bare", "--device", device]
    passes = json.loads(subprocess.run(itself, check=True, stdout=subprocess.PIPE).stdout)
    cold, warm = (1e3 * seconds / len(cells) for seconds in (passes[0], statistics.median(passes[1:])))
    print(f"bare loop: cold {cold:.3f} ms a cell, warm {warm:.3f}", flush=True)
    for jobs in each:
        clock = swept(cells, device, jobs, PASSES)
        ready, first, last = clock.when(0), clock.when(len(cells)), clock.when(PASSES * len(cells))
        its_cold = 1e3 * (first - ready) / len(cells)
        its_warm = 1e3 * (last - first) / (PASSES - 1) / len(cells)
        print(
            f"sweep, jobs {jobs}: cold {its_cold:.3f} ms a cell ({its_cold / cold:.2f} of bare), "
            f"warm {its_warm:.3f} ({its_warm / warm:.2f}); ready after {ready:.1f} s, first rows {clock.when(1):.1f} s",
            flush=True,
        )


def alone(cells: Sequence[Cell], arguments: argparse.Namespace) -> None:
    for devices in arguments.devices:
        gpus = chosen(devices, sys.executable)
        tell(f"{len(gpus)} GPUs", len(cells), swept(cells, "cuda", 1, 1, gpus))
    if arguments.many:
        tell(f"jobs {arguments.many}", len(cells), swept(cells, arguments.device, arguments.many, 1))


def tell(what: str, count: int, clock: Clock) -> None:
    took, first = clock.when(count) - clock.when(0), clock.when(1)
    print(f"{what}: {count} cells in {took:.2f} s after start-up; first rows after {first:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 4], help="beside the bare loop; none: neither")
    parser.add_argument(
        "--devices", nargs="*", default=[], help="then sweep --cells with a probe on each of: 0, or all"
    )
    parser.add_argument("--many", type=int, metavar="JOBS", help="then sweep --cells once, with so many jobs")
    parser.add_argument("--cells", type=int, default=540, help="in these last two")
    parser.add_argument("--dtype", help="theirs: fp32 has no cuDNN plans, of which each process keeps 2 MiB a shape")
    parser.add_argument("--memory", type=Path, help="a CSV of the memory that they take")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        bare(arguments.device)
        return
    if arguments.jobs:
        beside_bare(cells_of(540), arguments.device, arguments.jobs)
    with memory(arguments.memory) if arguments.memory else nullcontext():
        alone(cells_of(arguments.cells, arguments.dtype), arguments)


if __name__ == "__main__":
    main()
