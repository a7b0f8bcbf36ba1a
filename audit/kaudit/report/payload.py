"""Tables as the report page's script reads them: columns of numbers into lists of what is distinct.

100,000 rows share a few hundred tokens of ids, axis values and kernel names, and many share a whole outcome: each
stands in the page once.
"""

from collections.abc import Sequence
from itertools import chain

from msgspec import Struct

from kaudit.ids import Ids, cells_read
from kaudit.observation import WHOLE_CELL, Outcome
from kaudit.ranks import Paths
from kaudit.report.parts import Fields, Numbered, outcome_parts
from kaudit.report.verdicts import Telling, Verdict


class Line(Struct, frozen=True):
    """A row of the page: an outcome and a time in microseconds for each table, None where it has none.

    `told` is None for a row that another one, of its whole cell, speaks for.
    """

    cell: str
    op: str
    told: tuple[Telling, ...] | None
    outcomes: tuple[Outcome | None, ...]
    times: tuple[float | None, ...]


def payload(
    lines: Sequence[Line], verdicts: Sequence[Verdict], sides: Sequence[str], paths: Sequence[dict[str, Paths]]
) -> tuple[Fields, Fields]:
    """What the page shows at once, and the evidence of its outcomes, for the stories.

    `sides` names the tables, `paths` are theirs. Raises UserError where the id of a cell is none.
    """
    cells: Numbered[str] = Numbered()
    for line in lines:
        cells[line.cell]
    with cells_read():
        ids = Ids.of(cells)
        axes = list(ids.axes())
    ops = Numbered({op: number for number, op in enumerate(dict.fromkeys([WHOLE_CELL, *chain(*paths)]))})
    names = {verdict.name.replace(" ", "_"): number for number, verdict in enumerate(verdicts)}
    tellings: Numbered[tuple[Telling, ...]] = Numbered({(): 0})
    outcomes: Numbered[Outcome] = Numbered()
    rows: Fields = {
        "cell": [cells[line.cell] for line in lines],
        "op": [ops[line.op] for line in lines],
        "told": [-1 if line.told is None else tellings[line.told] for line in lines],
        "outcomes": [
            [-1 if one is None else outcomes[one] for one in side]
            for side in zip(*(line.outcomes for line in lines), strict=True)
        ],
        "times": _times(list(zip(*(line.times for line in lines), strict=True))),
    }
    heads, evidence = outcome_parts(list(outcomes))
    shown = {
        "verdicts": verdicts,
        "sides": sides,
        "paths": paths,
        "ops": list(ops),
        "tokens": ids.tokens,
        "cells": ids.columns,
        "axes": axes,
        "rows": rows,
        "tellings": [[(names[kind], sentence) for kind, sentence in told] for told in tellings],
        **heads,
    }
    return shown, evidence


def _times(sides: list[tuple[float | None, ...]]) -> list[list[float | None]]:
    """In four digits; nothing, unless each table has some."""
    if not all(any(time is not None for time in side) for side in sides):
        return []
    return [[None if time is None else float(f"{time:.4g}") for time in side] for side in sides]
