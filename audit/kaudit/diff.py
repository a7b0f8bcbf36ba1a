"""Two tables to Changes: pure, in table order, nothing held back."""

from collections.abc import Iterator

from msgspec.structs import replace

from kaudit.change import Change, Kind
from kaudit.errors import UserError, told_in
from kaudit.observation import WHOLE_CELL, Chosen, Outcome, Ran, Row
from kaudit.ranks import Paths
from kaudit.table import Header, Table, cells_of
from kaudit.transition import NotRan, between, describe, kind_of, problems, subject
from kaudit.varying import told as varied
from kaudit.wording import count

PREDICTED = "predicted, not observed: what the engine's own selector says it would choose; nothing was run"

Rows = tuple[Row, ...]
PathsOf = dict[str, Paths]


@told_in("docs/gate.md")
def comparable(before: Table, after: Table, across: bool = False) -> tuple[str, ...]:
    """What a reader of the diff should know first: one line per thing that differs and may explain a change.

    Raises UserError naming the fields that make two tables incomparable: engine, device, matrix (`table.read` has
    checked the schema). With `across` those become lines too, along with how many cells are not shared. A prediction
    and an observation are never compared: that they differ is no change of the engine.
    """
    predicted = before.header.predicted
    if predicted != after.header.predicted:
        one, other = ("predicted", "observed") if predicted else ("observed", "predicted")
        raise UserError(
            f"the first table is {one}, the second {other}, and the two are never compared; "
            "take two that are predicted, or two that are observed"
        )
    differing = [f"{name} {was} → {now}" for name, was, now in _identities(before.header, after.header) if was != now]
    if differing and not across:
        raise UserError(
            f"the tables are not of the same {', '.join(differing)}; sweep again to compare like with like, "
            "or compare what they share with --across"
        )
    context = [f"{name} {was} → {now}" for name, was, now in _circumstances(before.header, after.header) if was != now]
    if across:
        old, new = ({row.cell for row in table.rows.values()} for table in (before, after))
        if not old & new:
            raise UserError("the tables share no cell; compare two sweeps of one matrix")
        context += [
            f"{count(len(old & new), 'cell')} compared; {len(old - new)} only before, {len(new - old)} only after"
        ]
    return (*([PREDICTED] if predicted else []), *differing, *context)


def changes(before: Table, after: Table, across: bool = False) -> Iterator[Change]:
    """The changes from `before` to `after`; with `across`, only of the cells that both hold.

    Where the results of one table alone were checked, that they were is no change; that one is wrong, is.
    """
    if before.header.numerics != after.header.numerics:
        before, after = _forgetting_right_results(before), _forgetting_right_results(after)
    old_cells, new_cells = cells_of(before), cells_of(after)
    old, new = before.header.paths, after.header.paths
    known: Known = {}
    for cell in sorted({**old_cells, **new_cells}):
        if across and not (cell in old_cells and cell in new_cells):
            continue
        was, now = old_cells.get(cell, ()), new_cells.get(cell, ())
        # Equal rows may still hide a loss: a faster path that has entered the engine's list and is not taken.
        if was == now and old == new:
            continue
        found = _moved(cell, was, now, before.header, after.header, known)
        varying = any(row.others for row in (*was, *now))
        yield from varied(found, was, now, (old, new), repeated=after.header.repeat > 1) if varying else found


def _forgetting_right_results(table: Table) -> Table:
    """The table as if results had not been checked, but for those that are not right."""
    made: dict[int, Outcome] = {}  # rows share outcomes, and go on to

    def forgetting(outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Ran) or outcome.numerics != "ok":
            return outcome
        if id(outcome) not in made:
            made[id(outcome)] = replace(outcome, numerics="unchecked")
        return made[id(outcome)]

    def rowed(row: Row) -> Row:
        others = tuple(replace(other, outcome=other.outcome and forgetting(other.outcome)) for other in row.others)
        return replace(row, outcome=forgetting(row.outcome), others=others)

    return Table(table.header, {key: rowed(row) for key, row in table.rows.items()})


def _moved(cell: str, was: Rows, now: Rows, before: Header, after: Header, known: "Known") -> Iterator[Change]:
    """From the first run of a cell in one table to that in the other."""
    if not was:
        yield from _new_cell(now, after.paths)
    elif not now:
        yield Change("removed", cell, WHOLE_CELL, f"the cell is gone; before, {_summary(was)}", _whole(was), None)
    elif (stopped := _stopped(was)) and _ran(now):
        runs = "is predicted to run" if after.predicted else "runs"
        sentence = f"the cell {runs}; before, it {describe(stopped)}"
        yield Change("recovered", cell, WHOLE_CELL, sentence, was[0], None)
        for row in now:
            yield from _alone(row, after.paths)
    elif _ran(was) and (stopped := _stopped(now)):
        sentence = f"the cell {describe(stopped)}; before, {_summary(was)}"
        yield Change(kind_of(stopped), cell, WHOLE_CELL, sentence, None, now[0])
    else:
        yield from _by_op(was, now, before.paths, after.paths, known)


Known = dict[tuple[str, int, int], list[tuple[Kind, str]]]
"""What was found between two outcomes of an op, by identity: cells share outcomes, and the tables keep them alive."""


def _by_op(was: Rows, now: Rows, old: PathsOf, new: PathsOf, known: Known) -> Iterator[Change]:
    before, after = {row.op: row for row in was}, {row.op: row for row in now}
    for op in before | after:
        match before.get(op), after.get(op):
            case Row() as one, Row() as other:
                key = op, id(one.outcome), id(other.outcome)
                if key not in known:
                    known[key] = list(
                        between(subject(op), one.outcome, other.outcome, old.get(op, ()), new.get(op, ()))
                    )
                for kind, sentence in known[key]:
                    yield Change(kind, one.cell, op, sentence, one, other)
            case Row() as one, None:
                sentence = f"{subject(op)} is gone; before, it {describe(one.outcome)}"
                yield Change("removed", one.cell, op, sentence, one, None)
            case None, Row() as other:
                found_here = list(_alone(other, new))
                yield from found_here
                if not found_here:
                    sentence = f"{subject(op)} is new: it {describe(other.outcome)}"
                    yield Change("added", other.cell, op, sentence, None, other)


def _new_cell(rows: Rows, paths: PathsOf) -> Iterator[Change]:
    """The problems of a cell that has nothing to be compared with; `added` where there are none."""
    found = [change for row in rows for change in _alone(row, paths, "new cell: ")]
    yield from found
    if not found:
        yield Change("added", rows[0].cell, WHOLE_CELL, f"new cell: {_summary(rows)}", None, _whole(rows))


def _alone(row: Row, paths: PathsOf, prefix: str = "") -> Iterator[Change]:
    for kind, sentence in problems(subject(row.op), row.outcome, paths.get(row.op, ())):
        yield Change(kind, row.cell, row.op, prefix + sentence, None, row)


def _stopped(rows: Rows) -> NotRan | None:
    """Why no op of the cell was seen, where one row says so for all of them."""
    match rows:
        case (Row(op="*", outcome=outcome),) if not isinstance(outcome, Chosen):
            return outcome
    return None


def _ran(rows: Rows) -> int:
    """How many ops ran, or are predicted to."""
    return sum(isinstance(row.outcome, Chosen) for row in rows)


def _whole(rows: Rows) -> Row | None:
    return rows[0] if rows[0].op == WHOLE_CELL else None


def _summary(rows: Rows) -> str:
    if len(rows) == 1:
        return f"{subject(rows[0].op)} {describe(rows[0].outcome)}"
    return f"{_ran(rows)} of {count(len(rows), 'op')} ran"


def _identities(was: Header, now: Header) -> Iterator[tuple[str, object, object]]:
    yield "engine", was.stamp.engine, now.stamp.engine
    for field in ("name", "arch", "sm_count"):
        yield f"device {field}", getattr(was.stamp.device, field), getattr(now.stamp.device, field)
    yield "matrix digest", was.stamp.matrix_digest, now.stamp.matrix_digest
    yield "shard (merge those of a sweep with kaudit merge)", was.shard or "none", now.shard or "none"


def _circumstances(was: Header, now: Header) -> Iterator[tuple[str, object, object]]:
    yield "matrix", was.stamp.matrix, now.stamp.matrix
    yield "revision", was.stamp.revision, now.stamp.revision
    yield "kaudit", was.kaudit, now.kaudit
    yield "results checked", was.numerics, now.numerics
    for field in ("isolated", "sample", "seed", "repeat"):
        yield field, getattr(was, field), getattr(now, field)
    yield "driver", was.stamp.device.driver, now.stamp.device.driver
    for old, new in (
        (was.stamp.versions, now.stamp.versions),
        (was.stamp.environment, now.stamp.environment),
    ):
        for name in sorted(old.keys() | new.keys()):
            yield name, old.get(name, "(unset)"), new.get(name, "(unset)")
