"""An engine on the CPU of which chosen cells go wrong, by their batch size; all others are right.

PYTHONPATH=tests kaudit sweep MATRIX --engine engines_for_tests.faulty:FaultyEngine --device cpu
"""

import ctypes
import logging
import os
import sys
from collections.abc import Mapping

import torch

from kaudit.cell import Cell
from kaudit.observation import Refused, Rejection, Said, Skipped, Unmet
from kaudit_probes.engines import Heard, Path, Span

SEGFAULTS, ABORTS, EXITS, SLEEPS, SPINS, RAISES, REFUSES = 101, 102, 103, 104, 105, 106, 107
PRINTS, LIES, FALLS_BACK_SILENTLY, FALLS_BACK_ALOUD, UNSUPPORTED, INEXPRESSIBLE = 108, 109, 110, 111, 112, 113
RAISES_IN_PREPARE, SEGFAULTS_LATER = 114, 115

SLOW = (LIES, FALLS_BACK_SILENTLY, FALLS_BACK_ALOUD)

_log = logging.getLogger(__name__)


class NotHereError(Exception):
    """How this engine says no."""


class FaultyCall:
    def __init__(self, fate: int) -> None:
        self.fate = fate
        self.runs = 0
        self.matrix = torch.ones(8, 8)

    def run(self, span: Span) -> None:
        self.runs += 1
        with span("attention"):
            _misbehave(self.fate, self.runs)
            if self.fate in SLOW:
                torch.bmm(self.matrix[None], self.matrix[None])
            else:
                torch.mm(self.matrix, self.matrix)

    def claimed(self) -> Mapping[str, str]:
        return {"attention": "slow" if self.fate in SLOW and self.fate != LIES else "fast"}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        if self.fate not in SLOW:
            return {}
        return {"attention": (Rejection("fast", "asked", (Unmet("batch", str(self.fate), "at most 108"),)),)}


class FaultyEngine:
    name = "faulty"
    refusals: tuple[type[Exception], ...] = (NotHereError,)
    environment: tuple[str, ...] = ()

    def __init__(self, device: str) -> None:
        if device != "cpu":
            raise NotHereError(device)

    def revision(self) -> str:
        return "1"

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (Path("fast", (r"^aten::mm$",)), Path("slow", (r"^aten::bmm$",)))}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        match cell.shape.batch:
            case fate if fate == UNSUPPORTED:
                return Refused("batch=112 is not served")
            case fate if fate == INEXPRESSIBLE:
                return Skipped("this adapter knows no batch of 113")
        return None

    def prepare(self, cell: Cell) -> FaultyCall:
        if cell.shape.batch == RAISES_IN_PREPARE:
            raise ValueError("no such inputs")
        return FaultyCall(cell.shape.batch)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        said = dict.fromkeys(record.getMessage() for record in heard.records if record.name == __name__)
        return {"attention": (Rejection("fast", "announced", tuple(map(Said, said))),)} if said else {}


def _misbehave(fate: int, runs: int) -> None:
    match fate:
        case _ if fate == SEGFAULTS or (fate == SEGFAULTS_LATER and runs > 2):
            ctypes.string_at(0)
        case _ if fate == ABORTS:
            os.abort()
        case _ if fate == EXITS:
            sys.exit(3)
        case _ if fate == SLEEPS:
            ctypes.PyDLL(None).sleep(3600)  # a PyDLL keeps the interpreter's lock: no thread of the probe can run
        case _ if fate == SPINS:
            while True:
                pass
        case _ if fate == RAISES:
            raise RuntimeError("shape mismatch at 0x7f00dead\nand a second line")
        case _ if fate == REFUSES:
            raise NotHereError("batch=107 has no kernel")
        case _ if fate == FALLS_BACK_ALOUD:
            _log.warning("falling back to slow: the batch is odd")
        case _ if fate == PRINTS:
            print("x" * 1_000_000)
            print("y" * 1_000_000, file=sys.stderr)
            os.write(1, b'{"type":"closed"}\n' * 60_000)
            os.write(2, b"\xff\x00" * 500_000)
