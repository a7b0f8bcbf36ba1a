"""From a seed to the sweeps of a campaign: which faults, in which cells, in which mix."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaign.damage import DAMAGE
from campaign.in_cells import FAULTS
from campaign.in_sweeps import SWEEP_FAULTS, SweepFault
from campaign.planted import CellFault
from campaign.stage import CELLS

MOST_TOGETHER = 4
"""Cells that go wrong in one sweep."""


@dataclass(frozen=True)
class Planned:
    """One sweep: what befalls it, if anything, and what is planted in the cell of each number."""

    index: int
    probe: str
    befalls: SweepFault | None
    cells: dict[int, CellFault]

    @property
    def kinds(self) -> list[str]:
        faults = [*([self.befalls] if self.befalls else []), *self.cells.values()]
        return [f"{self.probe}: {fault.name}" for fault in faults]


def possible(probes: Sequence[str], only: str = "") -> dict[str, list[CellFault | SweepFault]]:
    """The kinds that can be planted here, by probe; those whose name holds `only`."""
    every: list[CellFault | SweepFault] = [*FAULTS.values(), *SWEEP_FAULTS.values(), *DAMAGE.values()]
    if probes != ("light",):
        from campaign.in_cells_torch import TORCH_FAULTS  # the light probe does without torch

        every += TORCH_FAULTS.values()
    return {
        probe: [
            fault
            for fault in every
            if probe in fault.probes
            and only in f"{probe}: {fault.name}"
            and (isinstance(fault, CellFault) or fault.possible())
        ]
        for probe in probes
    }


def planned(seed: int, faults: int, kinds: dict[str, list[CellFault | SweepFault]]) -> list[Planned]:
    """At least so many faults, in rounds that plant each kind once; kinds for a probe that is slow to start, in each
    third round."""
    sweeps: list[Planned] = []
    chance = random.Random(seed)
    count = rounds = 0
    while count < faults:
        slow_too = rounds % 3 == 0 or not kinds.get("light")
        own_of = {probe: own for probe, own in kinds.items() if slow_too or probe == "light"}
        in_this_round = [sweep for probe, own in own_of.items() for sweep in _round(probe, own, chance)]
        rounds += 1
        chance.shuffle(in_this_round)
        for befalls, probe, cells in in_this_round:
            if count < faults:
                sweeps.append(Planned(len(sweeps), probe, befalls, cells))
                count += len(sweeps[-1].kinds)
    return sweeps


def _round(
    probe: str, kinds: Sequence[CellFault | SweepFault], chance: random.Random
) -> Iterator[tuple[SweepFault | None, str, dict[int, CellFault]]]:
    """Each kind once: what befalls sweeps takes some of the cells' faults with it, the rest share sweeps."""
    in_cells = [fault for fault in kinds if isinstance(fault, CellFault)]
    chance.shuffle(in_cells)
    together = [fault for fault in in_cells if fault.mixes]

    def some(most: int) -> dict[int, CellFault]:
        taken = [together.pop() for _ in range(min(chance.randint(0, most), len(together)))]
        return dict(zip(chance.sample(range(CELLS[probe]), len(taken)), taken, strict=True))

    for fault in kinds:
        if isinstance(fault, SweepFault):
            yield fault, probe, some(2) if fault.mixes else {}
        elif not fault.mixes:
            yield None, probe, {chance.randrange(CELLS[probe]): fault}
    while together:
        if cells := some(MOST_TOGETHER):
            yield None, probe, cells
