"""What a matrix expects of a table, and where the table does not meet it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kaudit.cell import Cell
from kaudit.errors import UserError, told_in
from kaudit.ids import cells_read
from kaudit.matrix.rules import Expectation
from kaudit.observation import WHOLE_CELL, Crashed, Hung, Outcome, Predicted, Ran, Refused, Row, Skipped, Unseen
from kaudit.table import Table, cells_of
from kaudit.wording import count


class Miss(Struct, frozen=True):
    """An expectation that a cell does not meet; `cell` is empty for one that no cell is asked about: it is stale."""

    cell: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.cell} {self.sentence}".lstrip()


@told_in("docs/matrix.md")
def check_names(expectations: Sequence[Expectation], *tables: Table) -> None:
    """Raises UserError, a line each, for ops and paths that no table's engine lists: they can only be slips.

    Families are not looked up: they are the probe's, and it need not be installed here.
    """
    faults: dict[str, None] = {}
    for expectation in expectations:
        op, path = expectation.op, expectation.path
        ops = dict.fromkeys(op for table in tables for op in table.header.paths)
        paths = dict.fromkeys(path for table in tables for path in table.header.paths.get(op, ()))
        if op not in ops:
            faults[f'--expect: "{op}" is not an op of this engine; it has {", ".join(ops)}'] = None
        elif path is not None and path not in paths:
            faults[f'--expect: "{path}" is not a path of {op}; the engine lists {", ".join(paths)}'] = None
    if faults:
        raise UserError(*faults)


def unmet(table: Table, expectations: Sequence[Expectation]) -> Iterator[Miss]:
    """In the order of the expectations, then of the table.

    Skipped cells are not asked: they contradict themselves, or the adapter cannot express them. What crashed, hung or
    was not seen shows nothing, and so meets nothing. Raises UserError where the id of one that was run is none.
    """
    run = ((cell, rows) for cell, rows in cells_of(table).items() if not isinstance(rows[0].outcome, Skipped))
    with cells_read():
        cells = [(Cell.parse(cell), rows) for cell, rows in run]
    for expectation in expectations:
        asked = [(cell, rows) for cell, rows in cells if expectation.when.holds(cell)]
        if not asked:
            keys = ", ".join(f"{key}={'|'.join(patterns)}" for key, patterns in expectation.when.keys)
            has = keys or "anything"
            yield Miss("", f"stale: no cell that was run has {has}, where {_wanted(expectation)} is expected")
        for cell, rows in asked:
            saw = _misses(expectation, rows)
            if saw is not None:
                because = f" ({expectation.because})" if expectation.because else ""
                yield Miss(cell.id, f"{expectation.op}: expected {_wanted(expectation)}{because}, saw {saw}")


def _misses(expectation: Expectation, rows: Sequence[Row]) -> str | None:
    """What was seen instead, or None where the expectation is met."""
    row = next((row for row in rows if row.op in (expectation.op, WHOLE_CELL)), None)
    if row is None:
        return f"no such op, only {', '.join(row.op for row in rows)}"
    met = _meets(expectation, row.outcome)
    return None if met else _seen(expectation, row.outcome)


def _meets(expectation: Expectation, outcome: Outcome) -> bool:
    if expectation.refuses:
        return isinstance(outcome, Refused)
    if isinstance(outcome, Predicted):
        # Kernels and launches are to be seen; a prediction shows none.
        return expectation.family is None and expectation.most_launches is None and expectation.path == outcome.path
    if not isinstance(outcome, Ran):
        return False
    return (
        expectation.path in (None, outcome.path)
        and (expectation.family is None or any(kernel.family == expectation.family for kernel in outcome.kernels))
        and (expectation.most_launches is None or outcome.launches <= expectation.most_launches)
    )


def _wanted(expectation: Expectation) -> str:
    if expectation.refuses:
        return "a refusal"
    parts = (
        expectation.path and f"path {expectation.path}",
        expectation.family and f"a kernel of family {expectation.family}",
        expectation.most_launches is not None and f"at most {count(expectation.most_launches, 'launch')}",
    )
    return " and ".join(part for part in parts if part)


def _seen(expectation: Expectation, outcome: Outcome) -> str:
    match outcome:
        case Ran() if expectation.family is not None:
            families = ", ".join(dict.fromkeys(kernel.family for kernel in outcome.kernels)) or "no kernels"
            return f"{families} in {count(outcome.launches, 'launch')}"
        case Ran(path=path):
            return f"path {path or 'unrecognised'} in {count(outcome.launches, 'launch')}"
        case Predicted(path=path):
            return f"path {path}, predicted, and no kernels"
        case Refused(reason=reason):
            return f"a refusal: {reason}"
        case Crashed(how=how):
            return f"a crash: {how}"
        case Hung(limit=limit):
            return f"a hang of {limit:g} s"
        case Unseen(why=why):
            return f"nothing that can be vouched for: {why}"
        case Skipped(reason=reason):
            return f"a skip: {reason}"
