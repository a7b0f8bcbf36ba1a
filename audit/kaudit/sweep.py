"""A sweep: cells in, a table out, and nothing lost on the way.

Finished cells are kept in `<table>.partial`, which the table replaces at the end; the measures go beside it.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kaudit
from kaudit import measure
from kaudit.cell import Cell
from kaudit.conduct import conduct
from kaudit.errors import UserError, told_in
from kaudit.host import Host
from kaudit.journal import Journal, journal
from kaudit.observation import WHOLE_CELL, Row, Skipped
from kaudit.progress import Progress
from kaudit.table import SCHEMA, Header, Stamp, Table, write
from kaudit.wire import Hello


@dataclass(frozen=True)
class SweepRequest:
    """`command` starts the probe (child.probe_command); `cell_limit` is in seconds; without `out` the table is named
    after engine, revision and GPU, in the current folder."""

    command: tuple[str, ...]
    matrix: str
    matrix_digest: str
    out: Path | None = None
    resume: bool = False
    cell_limit: float = 120.0


@told_in("docs/capture.md")
def sweep(
    cells: Sequence[Cell], skipped: Sequence[tuple[Cell, str]], request: SweepRequest, progress: Progress
) -> tuple[Path, Table]:
    """Observe the cells and write the table. Skipped cells enter it with their reason.

    Raises UserError for what the user can mend, and ProbeError. What was finished by then, or by the time of a
    KeyboardInterrupt, is kept for `resume`.
    """
    if request.out is not None:
        _check_writable(request.out)
    host = Host(request.command, lambda hello: _header(hello, request), request.cell_limit, progress)
    try:
        header = host.greet()
        out = request.out or Path(table_name(header.stamp))
        with journal(out.with_name(out.name + ".partial"), header, resume=request.resume) as kept:
            _observe(host, cells, kept)
            table = Table.of(header, [*_rows(kept), *(Row(c.id, WHOLE_CELL, Skipped(why)) for c, why in skipped)])
            write(out, table)
            measure.write(measure.measure_path(out), (m for entry in kept.entries.values() for m in entry.measures))
            kept.path.unlink()
        return out, table
    finally:
        host.close()


def table_name(stamp: Stamp) -> str:
    """`<engine>@<revision>-<gpu>.jsonl`: "NVIDIA H200" is h200, any CPU is cpu."""
    gpu = stamp.device.name.removeprefix("NVIDIA ").lower() if stamp.device.sm_count else "cpu"
    return re.sub(r"[^\w.@+-]+", "-", f"{stamp.engine}@{stamp.revision}-{gpu}.jsonl", flags=re.ASCII)


def _observe(host: Host, cells: Sequence[Cell], kept: Journal) -> None:
    wanted = {cell.id: cell for cell in cells}
    if foreign := kept.entries.keys() - wanted.keys():
        raise UserError(
            f"{kept.path}: holds {min(foreign)}, which is not in this sweep; "
            "resume with the same matrix and --only, or delete the file to sweep anew"
        )
    host.progress.begin(len(kept.entries), len(wanted))
    try:
        for entries in conduct(host, [cell for name, cell in wanted.items() if name not in kept.entries]):
            kept.append(entries)
            host.progress.finished(len(kept.entries))
    except KeyboardInterrupt:
        host.progress.note(
            f"interrupted: {len(kept.entries)} of {len(wanted)} cells are kept in {kept.path}; go on with --resume"
        )
        raise


def _rows(kept: Journal) -> list[Row]:
    return [row for entry in kept.entries.values() for row in entry.rows]


def _header(hello: Hello, request: SweepRequest) -> Header:
    stamp = Stamp(
        hello.engine,
        hello.revision,
        hello.device,
        hello.versions,
        hello.environment,
        request.matrix,
        request.matrix_digest,
    )
    return Header(SCHEMA, kaudit.__version__, stamp, hello.paths)


def _check_writable(out: Path) -> None:
    """An hour's sweep must not end in what a glance can tell."""
    if out.is_dir():
        raise UserError(f"{out}: is a folder; name a file with --out")
    if out.exists() and not out.is_file():
        raise UserError(f"{out}: is no regular file, and a table would take its place; name a file with --out")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"{out}: {out.parent} is not a folder that can be written; choose another --out")
