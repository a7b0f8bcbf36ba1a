"""A probe that speaks the wire protocol and runs nothing. A cell's batch size says what becomes of it.

Run as a script, with the probe's pipes and what FAKE_* environment variables ask for.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from kaudit.cell import Cell
from kaudit.observation import OUT_OF_MEMORY, WHOLE_CELL, Crashed, Kernel, Outcome, Ran, Row
from kaudit.table import Device
from kaudit.wire import Batch, Closed, Failed, FromProbe, Hello, Measure, Note, Observed, Opened, Poisoned

SEGFAULTS, EXITS, HANGS, POISONS, UNSEEN, UNSEEN_IN_COMPANY = 101, 102, 103, 104, 105, 106
DIES_IN_COMPANY, PRINTS, GARBLES, KILLS_CAPTURE, STALLS_CAPTURE = 107, 108, 109, 110, 111
FORGETS, INVENTS, TWICE, LEAVES_A_CHILD = 112, 113, 114, 116
CHATTERS, ENDS_NO_LINE, FLOODS, STICKS = 117, 118, 119, 120
STARVES, STARVES_IN_COMPANY, HANGS_IN_COMPANY = 121, 122, 123
RAISES, RAISES_IN_COMPANY, BREAKS_THE_NEXT, HANGS_THE_NEXT = 124, 125, 126, 127
ODD = {RAISES: "ValueError", RAISES_IN_COMPANY: "RuntimeError"}


class Probe:
    def __init__(self, out_fd: int) -> None:
        self.out_fd = out_fd
        self.served: list[str] = []

    def send(self, message: FromProbe) -> None:
        data = memoryview(msgspec.json.encode(message) + b"\n")
        while data:
            data = data[os.write(self.out_fd, data) :]

    def work(self, cell: str, fate: int, alone: bool) -> None:
        time.sleep(float(os.environ.get("FAKE_DELAY", "0")))
        match fate:
            case _ if fate == SEGFAULTS or (fate == DIES_IN_COMPANY and not alone):
                os.kill(os.getpid(), signal.SIGSEGV)
            case _ if fate == LEAVES_A_CHILD:
                if os.fork():
                    os._exit(4)
                time.sleep(3600)  # holds the pipes open
            case _ if fate == EXITS:
                os._exit(3)
            case _ if fate == HANGS or (fate == HANGS_IN_COMPANY and self.served[0] != cell):
                time.sleep(3600)
            case _ if fate == POISONS:
                self.send(Poisoned(cell, "cudaErrorIllegalAddress"))
                sys.exit(1)
            case _ if fate == PRINTS:
                os.write(1, b'{"type":"closed"}\n' * 60_000)
                os.write(2, b"\xff\x00" * 500_000)
            case _ if fate == CHATTERS:
                while True:
                    self.send(Note("still busy"))
            case _ if fate == ENDS_NO_LINE:
                while True:
                    os.write(self.out_fd, b"x" * 65536)
            case _ if fate == FLOODS:
                os.write(1, b"x" * 1_000_000)
                time.sleep(3600)
            case _ if fate == GARBLES:
                os.write(self.out_fd, b"no message\n")

    def seen(self, cell: str, op: str, fate: int) -> Outcome:
        """The attention of a cell that sticks is slow if this process has served another before it."""
        sticks = fate == STICKS and op == "attention" and self.served[0] != cell
        return _ran(fate, "slow" if sticks else "fast")

    def starves(self, cell: str, fate: int) -> bool:
        return fate == STARVES or (fate == STARVES_IN_COMPANY and self.served[0] != cell)

    def raises(self, cell: str, fate: int) -> bool:
        return fate == RAISES or (fate == RAISES_IN_COMPANY and self.served[0] != cell)

    def observe(self, cells: tuple[str, ...], blocking: bool) -> Observed:
        fates = {cell: Cell.parse(cell).shape.batch for cell in cells}
        self.served += cells
        late = 0
        for cell, fate in fates.items():
            self.send(Opened(cell))
            if late:  # what an earlier cell has launched comes to light
                self.work(cell, late, alone=False)
            self.work(cell, fate, alone=len(cells) == 1)
            late = {BREAKS_THE_NEXT: POISONS, HANGS_THE_NEXT: HANGS}.get(fate, 0)
            if blocking and late:
                self.work(cell, late, alone=False)
            self.send(Closed())
        end = "" if cells else os.environ.get("FAKE_EMPTY")
        if KILLS_CAPTURE in fates.values() or end == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if STALLS_CAPTURE in fates.values() or end == "hangs":
            time.sleep(3600)
        redo = {
            cell: "2 launches have no kernel"
            for cell, fate in fates.items()
            if blind() or fate == UNSEEN or (fate == UNSEEN_IN_COMPANY and len(cells) > 1)
        }
        seen = [cell for cell, fate in fates.items() if cell not in redo and fate != FORGETS]
        starved = {cell for cell in seen if self.starves(cell, fates[cell])}
        raised = {cell for cell in seen if self.raises(cell, fates[cell])}
        ran = [cell for cell in seen if cell not in starved | raised]
        rows = [Row(cell, op, self.seen(cell, op, fates[cell])) for cell in ran for op in ("attention", "o_proj")]
        rows += [Row(cell, WHOLE_CELL, OUT_OF_MEMORY) for cell in starved]
        rows += [Row(cell, WHOLE_CELL, Crashed(f"{ODD[fates[cell]]}: cell {cell[-2:]} is odd")) for cell in raised]
        rows += [Row("decode/invented", WHOLE_CELL, _ran(1)) for fate in fates.values() if fate == INVENTS]
        rows += [row for row in rows if fates.get(row.cell) == TWICE]
        return Observed(tuple(rows), tuple(Measure(row.cell, row.op, time.monotonic()) for row in rows), redo)


def blind() -> bool:
    """Whether the profiler shows nothing on this probe's GPU."""
    return "FAKE_BLIND" in os.environ and os.environ["FAKE_BLIND"] == os.environ.get("CUDA_VISIBLE_DEVICES")


def _ran(seed: int, path: str = "fast") -> Ran:
    return Ran(path, (Kernel(f"kernel_{seed}", "gemm", "gemm", 1 + seed),), claimed=path)


def _begin(send: Callable[[FromProbe], None]) -> None:
    """What the environment asks for instead of, or before, Hello."""
    match os.environ.get("FAKE_START"):
        case "dies":
            print("ImportError: no such engine", file=sys.stderr)
            sys.exit(1)
        case "hangs":
            time.sleep(3600)
        case "fails":
            send(Failed("--device cuda: there is none; use --device cpu"))
            sys.exit(0)
    revision = os.environ.get("FAKE_REVISION", "1.0+gabc/x")
    if pids := os.environ.get("FAKE_PIDS"):
        with Path(pids).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if os.environ.get("FAKE_CHANGES"):  # another revision each time it starts
            revision = str(len(Path(pids).read_text().splitlines()))
    send(Note("waking up"))
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    if log := os.environ.get("FAKE_GPUS"):
        with Path(log).open("a") as file:
            file.write(f"{gpu}\n")
    device = Device("NVIDIA H100" if gpu == os.environ.get("FAKE_H100", "") else "NVIDIA H200", "sm_90", 132, "580.1")
    send(Hello("fake", revision, device, {"torch": "2.8"}, {}, {"attention": ("fast", "slow"), "o_proj": ("fast",)}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    arguments = parser.parse_args()
    probe = Probe(arguments.out_fd)
    _begin(probe.send)
    with os.fdopen(arguments.in_fd, "rb") as batches:
        for line in batches:
            batch = msgspec.json.decode(line, type=Batch)
            if blind() and not batch.cells:
                probe.send(Failed("the profiler shows nothing here: no kernels; run kaudit doctor"))
                break
            probe.send(probe.observe(batch.cells, batch.blocking))


if __name__ == "__main__":
    main()
