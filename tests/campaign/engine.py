"""An engine for the real probe, right in every cell but for what is planted there, on a CPU or a GPU."""

from collections.abc import Mapping

import torch

from campaign import planted
from campaign.in_cells import FAULTS
from campaign.in_cells_torch import TORCH_FAULTS
from kaudit.cell import Cell
from kaudit.observation import Refused, Rejection, Skipped
from kaudit_probes.engines import Heard, Path, Span


class PlantedCall:
    def __init__(self, cell: str, device: str) -> None:
        self.cell = cell
        self.matrix = torch.ones(8, 8, device=device)

    def run(self, span: Span) -> None:
        with span("attention"):
            planted.run(self.cell, FAULTS | TORCH_FAULTS)
            torch.mm(self.matrix, self.matrix)

    def claimed(self) -> Mapping[str, str]:
        return {"attention": "only"}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {}


class PlantedEngine:
    name = "planted"
    refusals: tuple[type[Exception], ...] = ()
    environment: tuple[str, ...] = ()

    def __init__(self, device: str) -> None:
        planted.begin()
        self.device = device

    def revision(self) -> str:
        return "1"

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (Path("only"),)}

    def supports(self, cell: Cell) -> Refused | Skipped | None:  # noqa: ARG002
        return None

    def prepare(self, cell: Cell) -> PlantedCall:
        return PlantedCall(cell.id, self.device)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002
        return {}
