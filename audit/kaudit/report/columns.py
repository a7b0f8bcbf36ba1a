"""The columns of `kaudit show`: what of a row to print."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from kaudit.errors import UserError, told_in
from kaudit.launches import short
from kaudit.observation import UNCLASSIFIED, Chosen, Kernel, Predicted, Ran, Row, is_fallback, is_silent_fallback
from kaudit.ranks import Paths
from kaudit.reasons import because
from kaudit.transition import describe
from kaudit.varying import variations

DEFAULT = ("cell", "op", "outcome", "path", "fallback", "families", "launches")


@told_in("docs/table.md")
def choose(names: Sequence[str]) -> tuple[str, ...]:
    """Raises UserError for a column that there is not."""
    if unknown := [name for name in names if name not in COLUMNS]:
        raise UserError(f"no column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    return tuple(names)


class Listing(Struct, frozen=True):
    """Rows of text under their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self, width: int | None) -> Iterator[str]:
        """Aligned columns. Where they are wider than `width` characters, a cell's id gets a line before its rows."""
        whole = aligned([self.columns, *self.rows])
        if "cell" not in self.columns or width is None or max(map(len, whole)) <= width:
            yield from whole
            return
        place = self.columns.index("cell")
        cells = [row[place] for row in self.rows]
        heading, *rest = aligned([(*row[:place], *row[place + 1 :]) for row in (self.columns, *self.rows)])
        yield f"  {heading}"
        for before, cell, line in zip([None, *cells], cells, rest, strict=False):
            if cell != before:
                yield cell
            yield f"  {line}"


def table(rows: Iterable[Row], columns: Sequence[str], paths: Mapping[str, Paths]) -> Listing:
    """The columns of the rows; `paths` are the engine's, by op."""
    texts = (tuple(COLUMNS[column](row, paths.get(row.op, ())) for column in columns) for row in rows)
    return Listing(tuple(columns), tuple(texts))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text, a column as wide as its widest value."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _of_ran(text: Callable[[Ran], str]) -> Callable[[Row, Paths], str]:
    """A column that only an op which ran has something in."""
    return lambda row, _: text(row.outcome) if isinstance(row.outcome, Ran) else ""


def _of_chosen(text: Callable[[Chosen], str]) -> Callable[[Row, Paths], str]:
    """A column that a prediction has something in, too."""
    return lambda row, _: text(row.outcome) if isinstance(row.outcome, Chosen) else ""


def _of_kernels(text: Callable[[Kernel], str]) -> Callable[[Row, Paths], str]:
    """A column with one value per kernel, equal neighbours said once."""
    return _of_ran(lambda ran: " ".join(dict.fromkeys(map(text, ran.kernels))))


def outcome(row: Row, _: Paths) -> str:
    match row.outcome:
        case Ran():
            return "ran"
        case Predicted():
            return "predicted"
        case other:
            return describe(other)


def fallback(row: Row, paths: Paths) -> str:
    if not isinstance(row.outcome, Chosen) or not is_fallback(row.outcome, paths):
        return ""
    if isinstance(row.outcome, Predicted):
        return "predicted"
    return "SILENT" if is_silent_fallback(row.outcome, paths) else "announced"


def dims(value: tuple[int, int, int] | None) -> str:
    return "×".join(map(str, value)) if value else "?"


COLUMNS: dict[str, Callable[[Row, Paths], str]] = {
    "cell": lambda row, _: row.cell,
    "op": lambda row, _: row.op,
    "outcome": outcome,
    "path": _of_chosen(lambda chosen: chosen.path or "NONE LISTED"),
    "claimed": _of_ran(lambda ran: ran.claimed or ""),
    "contradiction": _of_ran(lambda ran: "CONTRADICTION" if ran.contradiction else ""),
    "fallback": fallback,
    "why": _of_chosen(lambda chosen: "; ".join(f"{no.path} ({no.source}): {because(no)}" for no in chosen.rejections)),
    "kernels": _of_kernels(lambda kernel: short(kernel.name)),
    "families": _of_kernels(lambda kernel: "UNCLASSIFIED" if kernel.family == UNCLASSIFIED else kernel.family),
    "launches": _of_ran(lambda ran: str(ran.launches)),
    "grid": _of_kernels(lambda kernel: dims(kernel.grid)),
    "block": _of_kernels(lambda kernel: dims(kernel.block)),
    "registers": _of_kernels(lambda kernel: "?" if kernel.registers is None else str(kernel.registers)),
    "shared_memory": _of_kernels(lambda kernel: "?" if kernel.shared_memory is None else str(kernel.shared_memory)),
    "graph": _of_ran(lambda ran: ran.graph_got),
    "graph_asked": _of_ran(lambda ran: ran.graph_asked),
    "numerics": _of_ran(lambda ran: ran.numerics),
    "varies": lambda row, paths: "; ".join(f"{kind}: {sentence}" for kind, sentence in variations(row, paths)),
}
