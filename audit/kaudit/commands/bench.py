"""`kaudit bench CELL`: time one cell."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kaudit.commands.options import Csv, Python
from kaudit.errors import UserError, told_in
from kaudit.terminal import data, words


@told_in("docs/timing.md")
def bench(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="A cell's id, as kaudit matrix prints them.")],
    engine: Annotated[str, typer.Option(help="A listed engine, or your own package.module:Class.")] = "reference",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    csv: Csv = None,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the measures, with all samples, as a sweep does.")
    ] = None,
    python: Python = sys.executable,
) -> None:
    """Time one cell: the figures of its ops and of the whole call, and what they hang on."""
    from kaudit.applicable import inapplicable
    from kaudit.cell import Cell
    from kaudit.child import probe_command
    from kaudit.ids import digest
    from kaudit.measure import measure_path, read_timings
    from kaudit.observation import WHOLE_CELL
    from kaudit.progress import progress
    from kaudit.report.times import listing, manifest
    from kaudit.shortage import temporary_folder
    from kaudit.sweep import TIMING_LIMIT, SweepRequest, sweep
    from kaudit.terminal import check_output, save, save_bytes
    from kaudit.timing_records import csv_lines, records
    from kaudit.transition import describe

    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f'--device: "{device}" is not one of auto, cpu, cuda; write one')
    try:
        parsed = Cell.parse(cell)
    except ValueError as error:
        raise UserError(f"{error}; kaudit matrix release prints some") from None
    if why := inapplicable(parsed):
        raise UserError(f"{cell}: {why}; name another cell")
    check_output(csv)
    check_output(parquet)
    if csv is not None and parquet is not None and csv.resolve() == parquet.resolve():
        raise UserError(f"--parquet: {parquet} is that of --csv, too; name another file")
    with temporary_folder() as folder, progress() as told:
        command = probe_command(python, engine, device, timing=TIMING_LIMIT)
        request = SweepRequest(command, "bench", digest([cell]), folder / "bench.jsonl")
        path, table = sweep([parsed], (), request, told)
        timings = read_timings(path)
        if parquet is not None:
            measures = measure_path(path).read_bytes()
    if whole := table.rows.get((cell, WHOLE_CELL)):
        raise UserError(f"{cell}: {describe(whole.outcome)}; there is nothing to time")
    found = list(records(table, timings))
    data(listing(found).lines(width=0))
    data(["", *manifest(found, table.header.stamp)])
    if csv is not None:
        save(csv, csv_lines(found))
    if parquet is not None:
        save_bytes(parquet, measures)
    words(f"written: {path}" for path in (csv, parquet) if path is not None)
