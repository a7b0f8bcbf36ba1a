"""An engine on the CPU of which chosen cells, by their batch size, do not always take the same path; all others do.

PYTHONPATH=tests kaudit sweep MATRIX --engine engines_for_tests.moody:MoodyEngine --device cpu --isolate-sample 8
"""

from collections.abc import Mapping

import torch

from engines_for_tests.faulty import FaultyEngine
from kaudit.cell import Cell
from kaudit.observation import Rejection
from kaudit_probes.engines import Span

STICKY, FLAPPING = 201, 202


class MoodyCall:
    def __init__(self, slow: bool) -> None:
        self.slow = slow
        self.matrix = torch.ones(8, 8)

    def run(self, span: Span) -> None:
        with span("attention"):
            if self.slow:
                torch.bmm(self.matrix[None], self.matrix[None])
            else:
                torch.mm(self.matrix, self.matrix)

    def claimed(self) -> Mapping[str, str]:
        return {"attention": "slow" if self.slow else "fast"}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {}


class MoodyEngine(FaultyEngine):
    """A sticky cell is slow if the process prepared another one before; a flapping one is slow every second time."""

    name = "moody"

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.prepared: list[Cell] = []

    def prepare(self, cell: Cell) -> MoodyCall:  # type: ignore[override]
        others, times = [other for other in self.prepared if other != cell], self.prepared.count(cell)
        self.prepared.append(cell)
        match cell.shape.batch:
            case fate if fate == STICKY:
                return MoodyCall(slow=bool(others))
            case fate if fate == FLAPPING:
                return MoodyCall(slow=times % 2 == 1)
        return MoodyCall(slow=False)
