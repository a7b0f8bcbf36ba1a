"""The dispatch table: JSON Lines, a header and one row per (cell, op), deterministic to the byte.

Rows are sorted by cell and op, keys are sorted, defaults are left out: two sweeps of one revision on one GPU write the
same file, a baseline lives in git, and one changed row is one changed line.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar

import msgspec
from msgspec import Struct

from kaudit import files
from kaudit.atomic import replacing
from kaudit.errors import UserError, told_in
from kaudit.observation import WHOLE_CELL, Chosen, Other, Outcome, Predicted, Ran, Row

SCHEMA = 1


class Device(Struct, frozen=True, omit_defaults=True):
    """`arch` is "sm_90" on a GPU, else the CPU's vector capability as torch names it; `sm_count` is 0 on a CPU.

    `predicted`: nothing ran; an engine's selector was asked what it would choose there. The name says so, too.
    """

    name: str
    arch: str
    sm_count: int
    driver: str
    predicted: bool = False


class Stamp(Struct, frozen=True):
    """What a table is valid for. `versions` are of the libraries as loaded; `environment` is what steers dispatch."""

    engine: str
    revision: str
    device: Device
    versions: dict[str, str]
    environment: dict[str, str]
    matrix: str
    matrix_digest: str


class Header(Struct, frozen=True, omit_defaults=True):
    """First line of a table. `paths` lists, per op, the engine's paths fastest first.

    `shard`: "2/8" of a table that has a part of the matrix's cells only. The others are runs.Checks: how often, and in
    what company, the cells were run. `numerics`: results were checked.
    """

    schema: int
    kaudit: str
    stamp: Stamp
    paths: dict[str, tuple[str, ...]]
    shard: str = ""
    isolated: bool = False
    sample: int = 0
    seed: int | None = None
    repeat: int = 1
    numerics: bool = False

    @property
    def predicted(self) -> bool:
        """Whether the rows are an engine's predictions: nothing was run."""
        return self.stamp.device.predicted


class Table(Struct, frozen=True):
    header: Header
    rows: dict[tuple[str, str], Row]

    @classmethod
    def of(cls, header: Header, rows: Iterable[Row]) -> Self:
        return cls(header, {row.key: row for row in sorted(rows, key=lambda row: row.key)})


class _FirstLine(Header, frozen=True, kw_only=True):
    """A header in its file: with the count of rows, so that a table cut short is no smaller table."""

    rows: int


class _AnySchema(Struct):
    schema: int


class _OfCell(Struct, gc=False):
    """What of a row says whose it is."""

    cell: str


class _Line(Struct, gc=False):
    """A row whose outcome is still text."""

    cell: str
    op: str
    outcome: msgspec.Raw
    others: tuple[Other, ...] = ()


_cell_decoder = msgspec.json.Decoder(_OfCell)
_line_decoder = msgspec.json.Decoder(_Line)
_outcome_decoder: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)
_encoder = msgspec.json.Encoder(order="sorted")


@told_in("docs/table.md")
def read(path: Path) -> Table:
    """Read a table. Raises UserError naming the line that is not a row, or how the schema differs."""
    with _lines(path) as lines:
        return _read(path, lines)


def _read(path: Path, lines: Iterator[bytes]) -> Table:
    # The header first: what is no table is not read to its end.
    header = _first(path, lines)
    rows: dict[tuple[str, str], Row] = {}
    # Many cells share an outcome to the byte, an op that does not look at the KV cache for one: each is built once.
    outcomes: dict[bytes, Outcome] = {}
    for number, line in enumerate(lines, start=2):
        try:
            known = _line_decoder.decode(line)
            text = bytes(known.outcome)
            if text not in outcomes:
                outcomes[text] = _outcome_decoder.decode(text)
                _check_kind(outcomes[text], header, f"{path}:{number}")
            for other in known.others:
                _check_kind(other.outcome, header, f"{path}:{number}")
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not a row of a table: {error}; restore it or sweep again") from None
        key = known.cell, known.op
        if key in rows:
            raise UserError(f"{path}:{number}: {' '.join(key)} stands twice; restore it or sweep again")
        rows[key] = Row(*key, outcomes[text], known.others)
    if len(rows) != header.rows:
        raise UserError(f"{path}: has {len(rows)} of its {header.rows} rows; restore it or sweep again")
    shown: Iterator[Row | Other] = chain(rows.values(), *(row.others for row in rows.values() if row.others))
    needing = {one.op for one in shown if one.op != WHOLE_CELL or isinstance(one.outcome, Chosen)}
    unlisted = needing - {op for op, paths in header.paths.items() if paths}
    if unlisted:
        raise UserError(f"{path}:1: no paths listed for {', '.join(sorted(unlisted))}; restore it or sweep again")
    return Table(Header(*(getattr(header, field) for field in Header.__struct_fields__)), rows)


def read_stamp(path: Path) -> Stamp:
    """Of a table, of which no more than the first line is read. Raises UserError where that is no header."""
    with _lines(path) as lines:
        return _first(path, lines).stamp


def read_cells(path: Path) -> set[str]:
    """The ids in a table, of whose rows no more is looked at. Raises UserError where a line is no row."""
    with _lines(path) as lines:
        _first(path, lines)
        try:
            return {_cell_decoder.decode(line).cell for line in lines}
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UserError(f"{path}: not a row of a table: {error}; restore it or sweep again") from None


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[bytes]]:
    try:
        with files.reading(path) as file:
            yield files.lines(file)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; name a table that `kaudit sweep` wrote") from None


def _first(path: Path, lines: Iterator[bytes]) -> _FirstLine:
    if (line := next(lines, None)) is None:
        raise UserError(f"{path}: the file is empty; sweep again to write it")
    return decode_header(line, str(path), _FirstLine)


def _check_kind(outcome: Outcome | None, header: Header, where: str) -> None:
    """What was seen and what is only predicted never stand in one table. Raises UserError."""
    match outcome, header.predicted:
        case Ran(), True:
            mixed = "an observed row in a table of predictions"
        case Predicted(), False:
            mixed = "a predicted row in a table of observations"
        case _:
            return
    raise UserError(f"{where}: {mixed}; the two are never mixed: restore it or sweep again")


H = TypeVar("H", bound=Header)


def decode_header(line: bytes, where: str, kind: type[H]) -> H:
    """Raises UserError with one of three messages: not a table, written by a newer kaudit, written by an older one."""
    try:
        schema = msgspec.json.decode(line, type=_AnySchema).schema
        if schema > SCHEMA:
            raise UserError(f"{where}:1: schema {schema} is newer than this kaudit's {SCHEMA}; upgrade kaudit")
        if schema < SCHEMA:
            raise UserError(f"{where}:1: schema {schema} is older than this kaudit's {SCHEMA}; sweep again")
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{where}:1: not the header of a table: {error}; name one that `kaudit sweep` wrote") from None


def encoded(table: Table) -> bytes:
    first = _FirstLine(**msgspec.structs.asdict(table.header), rows=len(table.rows))
    lines = [_encoder.encode(first), *(_encoder.encode(row) for row in table.rows.values()), b""]
    return b"\n".join(lines)


@told_in("docs/table.md")
def write(path: Path, table: Table) -> None:
    """Write a table whole or not at all. Raises UserError where the folder cannot be written."""
    try:
        with replacing(path) as file:
            file.write(encoded(table))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose another --out") from None


def cells_of(table: Table) -> Mapping[str, tuple[Row, ...]]:
    """The rows of each cell, in table order."""
    cells: dict[str, tuple[Row, ...]] = {}
    for row in table.rows.values():
        cells[row.cell] = (*cells.get(row.cell, ()), row)
    return cells
