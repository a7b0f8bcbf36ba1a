"""Times a sweep beside a bare loop over the same cells, each in processes of its own. Run as a script:

    python tests/bench_overhead.py [--jobs 1 4 8] [--devices 0 all] [--many 16] [--cells 10000]

The bare loop is what one would write by hand: prepare a cell, run it, synchronize. `cold` is a process's first pass
over the cells, in which libraries build their plans; `warm` a later one. Plans belong to a process, so each job keeps
its cells from pass to pass. What libraries keep on disk is there: a bare loop that is not counted ran before.
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
from kaudit.conduct import Again, in_company
from kaudit.gpus import chosen
from kaudit.host import Host
from kaudit.matrix import expand, load
from kaudit.sweep import SweepRequest, _hosts, sweep

MATRIX = Path(__file__).with_suffix(".yaml")
PASSES = 4

BATCH = 64
"""Cells, as in a sweep of 540 by four jobs or more."""


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


def probed(cells: Sequence[Cell], device: str, jobs: int) -> tuple[list[float], float, float]:
    """Seconds of each pass with so many probes at work; until they could take cells; from there to the first rows."""
    clock = Clock()
    request = SweepRequest(probe_command(sys.executable, "sdpa", device), "overhead", "0", jobs=jobs)
    hosts = _hosts(request, clock)
    turn = threading.Barrier(jobs + 1)

    def serve(host: Host, own: Sequence[Cell]) -> None:
        try:
            serve_all(host, own)
        except BaseException:
            turn.abort()  # else the others would wait for this one
            raise

    def serve_all(host: Host, own: Sequence[Cell]) -> None:
        host.launch()
        host.greet()
        again: list[Again] = []
        for _ in range(PASSES):
            turn.wait()
            for first in range(0, len(own), BATCH):
                batch = tuple(cell.id for cell in own[first : first + BATCH])
                for _ in in_company(host, batch, again, fresh=False):
                    clock.finished(len(clock.at))
            turn.wait()
        if again:
            print(f"  {len(again)} cells would have run again alone", file=sys.stderr)

    threads = [threading.Thread(target=serve, args=(host, cells[n::jobs])) for n, host in enumerate(hosts)]
    for thread in threads:
        thread.start()
    seconds, ready = [], 0.0
    try:
        for _ in range(PASSES):
            turn.wait()
            start = time.perf_counter()
            ready = ready or clock.now()
            turn.wait()
            seconds.append(time.perf_counter() - start)
    finally:
        for thread in threads:
            thread.join()
        for host in hosts:
            host.close()
    return seconds, ready, clock.at[0][0] - ready


def swept(cells: Sequence[Cell], device: str, jobs: int, gpus: tuple[str, ...] = ()) -> Clock:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        command = probe_command(sys.executable, "sdpa", device)
        out = Path(folder, "table.jsonl")
        sweep(cells, (), SweepRequest(command, "overhead", "0", out, gpus=gpus, jobs=jobs), clock)
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
    for _ in range(2):  # the first fills what is kept on disk
        passes = json.loads(subprocess.run(itself, check=True, stdout=subprocess.PIPE).stdout)
    cold, warm = of_passes(passes, cells)
    print(f"bare loop: cold {cold:.3f} ms a cell, warm {warm:.3f}", flush=True)
    for jobs in each:
        passes, ready, first = probed(cells, device, jobs)
        its_cold, its_warm = of_passes(passes, cells)
        print(
            f"probes, jobs {jobs}: cold {its_cold:.3f} ms a cell ({its_cold / cold:.2f} of bare), "
            f"warm {its_warm:.3f} ({its_warm / warm:.2f}); ready after {ready:.1f} s, first rows {first:.1f} s later",
            flush=True,
        )


def of_passes(seconds: Sequence[float], cells: Sequence[Cell]) -> tuple[float, float]:
    """Milliseconds a cell, cold and warm."""
    return 1e3 * seconds[0] / len(cells), 1e3 * statistics.median(seconds[1:]) / len(cells)


def alone(cells: Sequence[Cell], arguments: argparse.Namespace) -> None:
    for devices in arguments.devices:
        gpus = chosen(devices, sys.executable)
        tell(f"{len(gpus)} GPUs", len(cells), swept(cells, "cuda", 1, gpus))
    if arguments.many:
        tell(f"jobs {arguments.many}", len(cells), swept(cells, arguments.device, arguments.many))


def tell(what: str, count: int, clock: Clock) -> None:
    took, first = clock.when(count) - clock.when(0), clock.when(1)
    print(f"{what}: {count} cells in {took:.2f} s after start-up; first rows after {first:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 4, 8], help="beside the bare loop; none: neither")
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
