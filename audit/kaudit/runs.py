"""How often, and in what company, a sweep runs its cells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kaudit.cell import Cell
from kaudit.draw import drawn

ALONE = "alone"
"""The run of the sample, each cell of it alone in a fresh process."""


@dataclass(frozen=True)
class Checks:
    """What a sweep does to find out whether its cells always take the same path.

    `isolated`: each cell runs in a process of its own. `sample`: so many cells are run again in such, after the sweep,
    drawn with `seed`, else the matrix's digest. `repeat`: how often all cells are run.
    """

    isolated: bool = False
    sample: int = 0
    seed: int | None = None
    repeat: int = 1


@dataclass(frozen=True)
class Run:
    """Cells to run once. `name`: "" is the run that the table is made of, then "2", "3"…, and ALONE.

    `fresh`: each cell in a process that has run no other.
    """

    name: str
    cells: Sequence[Cell]
    fresh: bool


def runs(checks: Checks, cells: Sequence[Cell], own: set[str], digest: str) -> Iterator[Run]:
    """The runs of a sweep, over those of the matrix's cells whose ids are in `own`.

    The sample is drawn from the whole matrix, so that its shards have the sample of an undivided sweep between them.
    """
    mine = [cell for cell in cells if cell.id in own]
    for number in range(1, checks.repeat + 1):
        yield Run("" if number == 1 else str(number), mine, checks.isolated)
    sample = drawn(cells, digest if checks.seed is None else str(checks.seed))[: checks.sample]
    yield Run(ALONE, [cell for cell in sample if cell.id in own], fresh=True)
