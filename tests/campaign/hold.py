"""Plants the faults of one sweep, and says which of them did not come to what they must."""

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.draw import Planned
from campaign.planted import write_plan
from campaign.stage import Lines, Stage, Wrong, lines, outliving, untold, wrongs


@dataclass(frozen=True)
class Failure:
    """`kinds`: the faults that it may be of."""

    index: int
    kinds: list[str]
    what: str

    def __str__(self) -> str:
        return f"#{self.index} ({', '.join(self.kinds)}): {self.what}"


@dataclass
class Campaign:
    """`unfaulted`: by probe, of a sweep in which nothing is planted, header and rows, and seconds as Stage has them."""

    folder: Path
    seed: int
    unfaulted: dict[str, tuple[tuple[dict[str, Any], Lines], float]] = field(default_factory=dict)

    def hold(self, sweep: Planned) -> list[Failure]:
        table, seconds = self._unfaulted(sweep.probe)
        chance = random.Random(f"{self.seed}/{sweep.index}")
        jobs = chance.choice((1, 3)) if sweep.probe == "light" else 1
        stage = Stage(self.folder / str(sweep.index), sweep.probe, chance, seconds, jobs=jobs)
        names = stage.cells()
        cells = {names[number]: fault for number, fault in sweep.cells.items()}
        write_plan(stage.folder, {cell: fault.name for cell, fault in cells.items()})
        found: list[Wrong] = []
        try:
            if sweep.befalls is None:
                found += untold(stage.sweep().words, cells)
            else:
                sweep.befalls.befall(stage)
            found += wrongs(stage, cells, table)
        except Wrong as wrong:
            found.append(wrong)
        found += outliving(stage)
        return [
            Failure(sweep.index, [f"{sweep.probe}: {wrong.kind}"] if wrong.kind else sweep.kinds, str(wrong))
            for wrong in found
        ]

    def _unfaulted(self, probe: str) -> tuple[tuple[dict[str, Any], Lines], float]:
        if probe not in self.unfaulted:
            stage = Stage(self.folder / probe, probe, random.Random(0))
            write_plan(stage.folder, {})
            started = stage.start_writing()
            began = time.monotonic()
            stage.end(started, 0)
            self.unfaulted[probe] = lines(stage.table), time.monotonic() - began
        return self.unfaulted[probe]
