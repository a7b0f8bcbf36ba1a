"""One sweep of the campaign through the command line, in a folder of its own, and what must be true of its table."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from campaign.in_cells import LIMITS
from campaign.planted import PIDS, CellFault
from processes import alive

TESTS = Path(__file__).parents[1]
CELLS = {"light": 80, "real": 36, "cuda": 36}
"""Two batches or more."""

END_LIMIT = 400.0
PATIENCE = 60.0
"""Seconds: for a sweep to end, and for anything less to happen."""

MATRIX = """\
axes:
  phase: [decode]
  heads: [h8x2x64]
  kv_layout: [paged16]
  shape: [{}]
"""
SAME = "decode/bf16/kv-bf16/h8x2x64/paged16/causal/neox/plain"


class Wrong(Exception):
    """What came of a fault is not what must. `kind`: the fault, empty where it could be any of the sweep's."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Started:
    """A command, and where its streams go."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    words: list[str]
    """Lines of stderr."""


Lines = Mapping[str, list[str]]
"""The rows of a table, as they are written, by cell."""


@dataclass
class Stage:
    """`probe`: light, real or cuda; `seconds`: from an undisturbed sweep's first cell to its end; `delay`: of a light
    cell, in seconds; `jobs`: probes at a time."""

    folder: Path
    probe: str
    chance: random.Random
    seconds: float = 1.0
    delay: float = 0.005
    jobs: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "out").mkdir()
        self.matrix.write_text(MATRIX.format(", ".join(self.shapes())), "utf-8")
        script = self.folder / "light-python"
        command = shlex.join([sys.executable, str(TESTS / "campaign" / "light_probe.py")])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
        script.chmod(0o755)

    @property
    def matrix(self) -> Path:
        return self.folder / "m.yaml"

    @property
    def table(self) -> Path:
        return self.folder / "out" / "t.jsonl"

    @property
    def journal(self) -> Path:
        return self.table.with_name("t.jsonl.partial")

    def cells(self) -> list[str]:
        return [f"{SAME}/{shape}" for shape in self.shapes()]

    def shapes(self) -> list[str]:
        return [f"b1q1k{64 + number}" for number in range(CELLS[self.probe])]

    def command(self, *flags: str) -> list[str]:
        python = str(self.folder / "light-python") if self.probe == "light" else sys.executable
        device = "cuda" if self.probe == "cuda" else "cpu"
        asked = ["--engine", "campaign.engine:PlantedEngine", "--device", device, "--python", python]
        limit = ["--cell-timeout", str(LIMITS[self.probe]), "--jobs", str(self.jobs)]
        sweep = ["-m", "kaudit", "sweep", str(self.matrix), *asked, *limit, "--out", str(self.table), *flags]
        return [sys.executable, *sweep]

    def start(self, *flags: str, before: Callable[[], object] = bool, **streams: Any) -> Started:
        """Start the sweep; it runs `before` just before it begins. `streams` may replace stdout and stderr."""
        return self.popen(self.command(*flags), before, **streams)

    def start_writing(self) -> Started:
        """Start the sweep, and wait until its first cells run."""
        started = self.start()
        self.wait_for("the journal", self.journal.exists)
        return started

    def start_probing(self, *flags: str) -> Started:
        """Start the sweep, and wait for its probe, and then for some point of its work."""
        before = len(self.pids())
        started = self.start(*flags)
        self.wait_for("a probe", lambda: len(self.pids()) > before)
        self.wait_a_while()
        return started

    def popen(self, command: list[str], before: Callable[[], object] = bool, **streams: Any) -> Started:
        folders = [self.environment.get("PYTHONPATH", ""), str(TESTS), os.environ.get("PYTHONPATH", "")]
        own = {"CAMPAIGN_FOLDER": str(self.folder), "CAMPAIGN_DELAY": str(self.delay)}
        environment = os.environ | self.environment | own | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}

        def begin() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind
            before()

        self.started += 1
        paths = self.folder / f"stdout{self.started}", self.folder / f"stderr{self.started}"
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            to = {"stdout": out, "stderr": err} | streams
            return Started(subprocess.Popen(command, env=environment, preexec_fn=begin, **to), *paths)

    def end(self, started: Started, *codes: int) -> Ended:
        """Wait for it. It must end in one of these ways, with one line of error if any, and never with a traceback."""
        try:
            code = started.process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            started.process.kill()
            started.process.wait()
            raise Wrong(f"did not end within {END_LIMIT:g} s") from None
        words = started.err.read_text("utf-8", "replace").splitlines()
        said = "; ".join(words[-3:])
        if code not in codes:
            raise Wrong(f"exit code {code}, not {' or '.join(map(str, codes))}: {said}")
        if any(line.startswith(("Traceback", "bug:")) for line in words):
            raise Wrong(f"not an end for users: {said}")
        if unprintable := [line for line in words if not line.isprintable()]:
            raise Wrong(f"unprintable words: {unprintable[0]!r}")
        errors = [line for line in words if line.startswith("error: ")]
        if code == 2 and len(errors) != 1:
            raise Wrong(f"{len(errors)} lines of error: {said}")
        return Ended(code, started.out.read_text("utf-8", "replace"), words)

    def sweep(self, *flags: str, codes: tuple[int, ...] = (0,), **how: Any) -> Ended:
        return self.end(self.start(*flags, **how), *codes)

    def pids(self) -> list[int]:
        """The probes that were started here."""
        path = self.folder / PIDS
        return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise Wrong(f"waited in vain for {what}")
            time.sleep(0.002)

    def wait_a_while(self) -> None:
        """Until some point of a sweep that was just started: mostly while it works, else while its probe starts."""
        if self.chance.random() < 0.7:
            self.wait_for("the journal", self.journal.exists)
        time.sleep(self.chance.uniform(0, 0.9 * self.seconds))


def lines(table: Path) -> tuple[dict[str, Any], Lines]:
    """The header, without its count of rows and what NVML alone knows, and the rows."""
    first, *rest = table.read_text("utf-8").splitlines()
    rows: dict[str, list[str]] = {}
    for line in rest:
        rows.setdefault(json.loads(line)["cell"], []).append(line)
    header = json.loads(first)
    del header["rows"], header["stamp"]["device"]["driver"]
    return header, rows


def said_of(line: str) -> str:
    """A row's outcome in words: `crashed: SIGSEGV`."""
    outcome = json.loads(line)["outcome"]
    return ": ".join([outcome.pop("type"), *map(str, outcome.values())])


def wrongs(stage: Stage, planted: Mapping[str, CellFault], unfaulted: tuple[dict[str, Any], Lines]) -> Iterator[Wrong]:
    """What the finished table has wrong: each cell that is not as planted, or not as in an unfaulted sweep."""
    header, rows = lines(stage.table)
    if header != unfaulted[0]:
        yield Wrong(f"the header is {header}")
    for cell in stage.cells():
        fault, found = planted.get(cell), rows.pop(cell, [])
        if fault is None or fault.comes_to is None:
            if found != unfaulted[1][cell]:
                yield Wrong(f"{cell}: rows {found}", fault.name if fault else "")
        elif fault.perhaps and found == unfaulted[1][cell]:
            continue
        elif len(found) != 1 or not re.fullmatch(fault.comes_to, said_of(found[0])):
            yield Wrong(f"{cell}: {' and '.join(map(said_of, found)) or 'lost'}, not {fault.comes_to}", fault.name)
    if rows:
        yield Wrong(f"rows of {min(rows)}, which nobody asked for")
    ran = [row for line in stage.table.read_text("utf-8").splitlines()[1:] if (row := json.loads(line))["op"] != "*"]
    measures = pd.read_parquet(stage.table.with_name("t.measure.parquet"))
    if list(zip(measures["cell"], measures["op"], strict=True)) != [(row["cell"], row["op"]) for row in ran]:
        yield Wrong("the measure file has other rows than the table")
    left = {file.name for file in stage.table.parent.iterdir()} - {"t.jsonl", "t.measure.parquet"}
    if left:
        yield Wrong(f"left behind: {min(left)}")


def untold(words: list[str], planted: Mapping[str, CellFault]) -> Iterator[Wrong]:
    """Of an otherwise undisturbed sweep: what cost a process has one line on stderr, all else at most one."""
    for cell, fault in planted.items():
        told = sum(f"{cell}: " in line for line in words)  # after the name of a probe, where there are several
        if told != 1 if fault.told else told > 1:
            yield Wrong(f"{cell}: {told} lines tell of it", fault.name)


def outliving(stage: Stage) -> Iterator[Wrong]:
    """Probes that still run, each of which is killed."""
    deadline = time.monotonic() + 10
    for pid in stage.pids():
        while alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                yield Wrong("a probe outlives its sweep")
                break
            time.sleep(0.01)
