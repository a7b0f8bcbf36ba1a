"""What is planted, as the probe sees it: which cell does what, written in the folder that CAMPAIGN_FOLDER names."""

import ctypes
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PLAN, PIDS = "plan.json", "pids"
START_DIES = "the next start dies"

_runs: Counter[str] = Counter()


@dataclass(frozen=True)
class Scene:
    """Where a fault happens. `runs`: how often this process ran the cell, this time included; `pipe`: the probe's own
    descriptor for its messages."""

    folder: Path
    cell: str
    runs: int
    pipe: int

    def mark(self, name: str) -> bool:
        """Leave a mark for other processes; False if it is there already."""
        try:
            (self.folder / name.replace("/", "+")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class CellFault:
    """A cell that goes wrong, in a probe of one of these kinds: light, real, cuda.

    `comes_to`: a regular expression for its outcome in words; None where its rows must be those of a sweep in which
    nothing is planted, and `perhaps`, where both may be. `told`: it costs a process, which is worth one line on stderr.
    `mixes`: other cells of its sweep may go wrong, too.
    """

    name: str
    probes: tuple[str, ...]
    act: Callable[[Scene], None]
    comes_to: str | None
    told: bool = False
    perhaps: bool = False
    mixes: bool = True


def folder() -> Path:
    return Path(os.environ["CAMPAIGN_FOLDER"])


def write_plan(where: Path, kinds: dict[str, str]) -> None:
    """`kinds`: the name of a fault by cell id."""
    (where / PLAN).write_text(json.dumps(kinds), "utf-8")


def begin() -> None:
    """What a probe does first: tell its pid, and die here if that is planted."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    with (folder() / PIDS).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if (folder() / START_DIES).exists():
        (folder() / START_DIES).unlink()
        sys.exit("ImportError: no such library")


def run(cell: str, faults: dict[str, CellFault]) -> None:
    """Do what is planted in this cell, if anything is."""
    kind = json.loads((folder() / PLAN).read_text("utf-8")).get(cell)
    if kind is not None:
        _runs[cell] += 1
        pipe = int(sys.argv[sys.argv.index("--out-fd") + 1])
        faults[kind].act(Scene(folder(), cell, _runs[cell], pipe))
