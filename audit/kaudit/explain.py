"""What the changed rows share that the others do not: `head_dim=256 and kv_dtype=fp8_e4m3`.

Subgroup discovery (Klösgen 1996) by a beam search over conjunctions, and sequential covering for what one rule leaves
over (CN2: Clark and Niblett 1989; with a quality that counts both sides: CN2-SD, Lavrač et al. 2004). The quality is F1
on counts, so that 100 others caught by a rule weigh the same in a table of 1 000 rows and in one of 100 000.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from msgspec import Struct

from kaudit.change import Change, Kind
from kaudit.ids import cells_read
from kaudit.literals import Grid, Mask, Numbers
from kaudit.observation import WHOLE_CELL
from kaudit.table import Table

Key = tuple[str, str]

LONGEST = 3  # literals in a rule; a longer one fits anything
RULES = 5  # for one kind; past that nothing is being explained
BEAM = 8
FEWEST = 2  # one changed row shares everything with itself
COVERS = 0.05  # of the changed rows, at least; less is noise
PER_LITERAL = 0.01  # of F1, that one literal more has to bring
PRECISE = 0.5  # at least this share of the rows that a rule catches has changed


class Rule(Struct, frozen=True):
    """A conjunction with its counts; without literals it is every row there is."""

    literals: tuple[str, ...]
    moved: int
    of_moved: int
    others: int
    of_others: int

    def __str__(self) -> str:
        what = " and ".join(self.literals) or "all of them"
        return f"{what}: {self.moved} of {self.of_moved} moved, {self.others} of {self.of_others} others"

    @property
    def perfect(self) -> bool:
        return self.moved == self.of_moved and not self.others


def explain(changes: Iterable[Change], before: Table, after: Table) -> dict[Kind, tuple[Rule, ...]]:
    """Per kind of change, the rules that tell its rows from the others that were compared.

    Where all changes of a kind are of one op, they are set against the other rows of that op; changes of whole cells
    against the other cells. Nothing is said of a kind with fewer than FEWEST rows, or with nothing in common.
    Raises UserError where a cell's id is none.
    """
    moved: defaultdict[Kind, set[Key]] = defaultdict(set)
    for change in changes:
        moved[change.kind].add((change.cell, change.op))
    # With --across, cells that only one table holds were not compared, and so are no evidence.
    compared = {cell for cell, _ in before.rows} & {cell for cell, _ in after.rows}
    compared |= {cell for group in moved.values() for cell, _ in group}
    keys = [key for key in before.rows | after.rows if key[0] in compared]

    @cache
    def universe(op: str | None) -> tuple[list[Key], Grid]:
        rows = list(_of_op(keys, op))
        return rows, Grid.of(rows)

    found = {}
    for kind, group in moved.items():
        ops = {op for _, op in group}
        with cells_read():
            rows, grid = universe(next(iter(ops)) if len(ops) == 1 else None)
        found[kind] = tuple(rules(grid, np.fromiter((row in group for row in rows), np.bool_, len(rows))))
    return {kind: of_kind for kind, of_kind in found.items() if of_kind}


def _of_op(keys: Iterable[Key], op: str | None) -> Iterable[Key]:
    """The rows to look at: of one op, of all, or (for WHOLE_CELL) one for every cell."""
    match op:
        case None:
            # That a row speaks for its whole cell is the change itself, and explains nothing.
            return (key for key in keys if key[1] != WHOLE_CELL)
        case "*":
            return ((cell, WHOLE_CELL) for cell in dict.fromkeys(cell for cell, _ in keys))
        case _:
            return (key for key in keys if key[1] == op)


def rules(grid: Grid, moved: Mask) -> Iterator[Rule]:
    """The shortest rule that is exactly right, else up to RULES of them, each for what is left."""
    of_moved, of_others = int(moved.sum()), int((~moved).sum())
    if of_moved < FEWEST:
        return
    if not of_others:
        yield Rule((), of_moved, of_moved, 0, 0)
        return
    left = moved.copy()
    enough = max(FEWEST, COVERS * of_moved)
    for _ in range(RULES):
        literals = _best(grid, left, ~moved)
        caught = np.arange(moved.size)
        for literal in literals:
            caught = grid.admitted(literal, caught)
        hits = int(moved[caught].sum())
        covers, others = int(left[caught].sum()), caught.size - hits
        if covers < max(enough, PRECISE * (covers + others)):
            return
        yield Rule(tuple(map(grid.text, literals)), hits, of_moved, others, of_others)
        left[caught] = False
        if left.sum() < enough:
            return


class _Candidate(Struct, frozen=True):
    """Literals by number, ascending; the rows that all of them catch; F1 of those rows against the wanted ones."""

    literals: tuple[int, ...]
    rows: Numbers
    quality: float


def _best(grid: Grid, wanted: Mask, others: Mask) -> tuple[int, ...]:
    best, *_ = beam = [_Candidate((), np.flatnonzero(wanted | others), 0.0)]
    for _ in range(LONGEST):
        beam = _longer(grid, beam, wanted)
        if not beam:
            break
        if beam[0].quality == 1.0:
            return beam[0].literals
        if beam[0].quality > best.quality + PER_LITERAL:
            best = beam[0]
    return best.literals


def _longer(grid: Grid, beam: list[_Candidate], wanted: Mask) -> list[_Candidate]:
    """The best conjunctions of one literal more, no two of which catch the same rows."""
    of_wanted = int(wanted.sum())
    found: dict[tuple[int, ...], tuple[float, int, _Candidate]] = {}
    for shorter in beam:
        caught, hits = grid.counts(shorter.rows), grid.counts(shorter.rows[wanted[shorter.rows]])
        quality = 2 * hits / (of_wanted + caught)
        quality[(caught == shorter.rows.size) | grid.narrowing(shorter.literals)] = 0
        for number in np.argsort(-quality, kind="stable")[:BEAM].tolist():
            if quality[number]:
                literals = tuple(sorted((*shorter.literals, number)))
                found[literals] = float(quality[number]), number, shorter
    kept: list[_Candidate] = []
    for literals, (score, number, shorter) in sorted(found.items(), key=lambda item: (-item[1][0], item[0])):
        rows = grid.admitted(number, shorter.rows)
        if not any(other.quality == score and np.array_equal(other.rows, rows) for other in kept):
            kept.append(_Candidate(literals, rows, score))
        if len(kept) == BEAM:
            break
    return kept
