"""`kaudit sweep MATRIX`: run it, and write the table."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from kaudit.commands.options import MOST, MatrixFile, MaxCells, Only, Python
from kaudit.errors import UserError
from kaudit.terminal import data, words


def sweep(
    matrix: MatrixFile,
    engine: Annotated[str, typer.Option(help="A listed engine, or your own package.module:Class.")] = "reference",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda; to predict for: sm_90…")] = "auto",
    devices: Annotated[
        str | None, typer.Option(metavar="all|0,1,…", help="Share the cells out between GPUs, a probe on each.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="So many probes on each GPU, or on the CPU.")] = 1,
    only: Only = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="One of N equal parts, for kaudit merge.")] = None,
    out: Annotated[Path | None, typer.Option(help="The table [default: ENGINE@REVISION-GPU.jsonl].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted sweep.")] = False,
    isolate: Annotated[bool, typer.Option("--isolate", help="Run each cell in a process of its own.")] = False,
    isolate_sample: Annotated[
        int, typer.Option(min=0, metavar="N", help="Run N cells again, each alone: does order matter?")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Draw another sample.", show_default="of the matrix's digest")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Run all cells N times: do they flap?")] = 1,
    numerics: Annotated[
        bool | None,
        typer.Option(help="Check results, too, against a float64 textbook [default: as the matrix says]."),
    ] = None,
    timing: Annotated[
        bool, typer.Option("--timing", help="Time each op and each cell, too, and measure peak memory.")
    ] = False,
    python: Python = sys.executable,
    cell_timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="A longer cell hangs.")] = 120.0,
    max_cells: MaxCells = 1_000_000,
) -> None:
    """Run a matrix under the profiler; write the table."""
    from kaudit.child import probe_command
    from kaudit.expect import unmet
    from kaudit.gpus import chosen
    from kaudit.growths import growths
    from kaudit.matrix import expand, load
    from kaudit.measure import read_timings
    from kaudit.outputs import check_table
    from kaudit.progress import progress
    from kaudit.report.summary import summary
    from kaudit.report.text import expectations
    from kaudit.report.times import times
    from kaudit.runs import Checks
    from kaudit.shard import Shard
    from kaudit.sweep import TIMING_LIMIT, SweepRequest
    from kaudit.sweep import sweep as run

    if not re.fullmatch(r"auto|cpu|cuda|sm_\d{2,3}", device):
        raise UserError(
            f'--device: "{device}" is not one of auto, cpu, cuda, or a GPU to predict for, as sm_90; write one'
        )
    if devices is not None and device not in ("auto", "cuda"):
        raise UserError(f"--devices: shares cells out between GPUs, --device {device} runs on none; leave out one")
    if seed is not None and not isolate_sample:
        raise UserError("--seed: draws the sample of --isolate-sample, which is not asked for; ask for it, too")
    if isolate and isolate_sample:
        raise UserError("--isolate-sample: with --isolate all cells run alone already; leave out one of them")
    if timing and jobs > 1:
        raise UserError("--timing: probes that share a device take each other's time; leave out --jobs")
    if out is not None:
        check_table(out, Path(matrix))
    part = Shard.parse(shard) if shard is not None else None
    loaded = load(matrix)
    plan = expand(loaded, max_cells).only(only)
    gpus = chosen(devices, python) if devices is not None else ()
    if numerics is None:
        numerics = loaded.numerics and not device.startswith("sm_")  # what only predicts has no results
    seconds = min(TIMING_LIMIT, cell_timeout / 4) if timing else 0
    request = SweepRequest(
        probe_command(python, engine, "cuda" if gpus else device, numerics, seconds),
        plan.name,
        plan.digest,
        out,
        resume=resume,
        cell_limit=cell_timeout,
        checks=Checks(isolate, min(isolate_sample, len(plan.cells)), seed, repeat),
        gpus=gpus,
        jobs=jobs,
        shard=part,
        numerics=numerics,
    )
    with progress() as told:
        path, table = run(plan.cells, plan.skipped, request, told)
    words(summary(table, growths(path)))
    words(times(table, read_timings(path), timing))
    words(expectations(tuple(unmet(table, loaded.expect)), MOST))
    data([str(path)])
