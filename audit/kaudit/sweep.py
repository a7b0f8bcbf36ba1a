"""A sweep: cells in, a table out, and nothing lost on the way.

Finished cells are kept in `<table>.partial`, which the table replaces at the end; the measures go beside it.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import kaudit
from kaudit import measure
from kaudit.cell import Cell
from kaudit.crew import conduct
from kaudit.errors import UserError, told_in
from kaudit.headers import difference
from kaudit.host import Host
from kaudit.journal import Journal, journal
from kaudit.observation import WHOLE_CELL, Row, Skipped
from kaudit.others import results
from kaudit.outputs import check_table
from kaudit.progress import Labelled, Progress
from kaudit.runs import Checks, Run, runs
from kaudit.shard import Shard
from kaudit.table import SCHEMA, Header, Stamp, Table, write
from kaudit.wire import Hello

TIMING_LIMIT = 20.0
"""Seconds for which a cell may be timed, at most. With a shorter limit for all work on a cell it is a quarter of that:
to be slow under a stopwatch is no hang."""


@dataclass(frozen=True)
class SweepRequest:
    """`command` starts the probe (child.probe_command); `cell_limit` is in seconds; without `out` the table is named
    after engine, revision and GPU, in the current folder. `gpus`: a probe on each, as CUDA_VISIBLE_DEVICES names them;
    without, on what torch takes. `jobs`: so many probes on each. With `shard`, of the cells only its part. `numerics`:
    the probe checks results."""

    command: tuple[str, ...]
    matrix: str
    matrix_digest: str
    out: Path | None = None
    resume: bool = False
    cell_limit: float = 120.0
    checks: Checks = field(default_factory=Checks)
    gpus: tuple[str, ...] = ()
    jobs: int = 1
    shard: Shard | None = None
    numerics: bool = False


@told_in("docs/capture.md")
def sweep(
    cells: Sequence[Cell], skipped: Sequence[tuple[Cell, str]], request: SweepRequest, progress: Progress
) -> tuple[Path, Table]:
    """Observe the cells and write the table. Skipped cells enter it with their reason.

    Raises UserError for what the user can mend, and ProbeError. What was finished by then, or by the time of a
    KeyboardInterrupt, is kept for `resume`.
    """
    if request.out is not None:
        check_table(request.out)
    everything = [*cells, *(cell for cell, _ in skipped)]
    own = request.shard.part(everything) if request.shard else {cell.id for cell in everything}
    hosts = _hosts(request, progress)
    try:
        header = _greet(hosts)
        out = request.out or Path(table_name(header.stamp, request.shard))
        check_table(out)
        with journal(out.with_name(out.name + ".partial"), header, resume=request.resume) as kept:
            if request.resume and not kept.done:
                progress.note(f"{kept.path}: nothing is kept there to resume; sweeping all cells")
            _observe(hosts, list(runs(request.checks, cells, own, request.matrix_digest)), kept, progress)
            rows, measures = results(kept.entries())
            rows += [Row(cell.id, WHOLE_CELL, Skipped(why)) for cell, why in skipped if cell.id in own]
            table = Table.of(header, rows)
            write(out, table)
            measure.write(measure.measure_path(out), measures, header.stamp)
            kept.path.unlink()
        return out, table
    finally:
        for host in hosts:
            host.close()


def table_name(stamp: Stamp, shard: Shard | None = None) -> str:
    """`<engine>@<revision>-<gpu>.jsonl`: "NVIDIA H200" is h200, any CPU is cpu; a shard adds `-2-of-8`.

    Of a prediction, the GPU is predicted-sm_90.
    """
    device = stamp.device
    gpu = device.name.removeprefix("NVIDIA ").lower() if device.sm_count or device.predicted else "cpu"
    part = f"-{shard.number}-of-{shard.of}" if shard else ""
    return re.sub(r"[^\w.@+-]+", "-", f"{stamp.engine}@{stamp.revision}-{gpu}{part}.jsonl", flags=re.ASCII)


def _hosts(request: SweepRequest, progress: Progress) -> list[Host]:
    shares = request.jobs > 1

    def told(gpu: str | None, job: int) -> Progress:
        names = [f"GPU {gpu}"] * (len(request.gpus) > 1) + [f"job {job}"] * shares
        return Labelled(progress, ", ".join(names)) if names else progress

    header_of = partial(_header, request=request)
    return [
        Host(request.command, header_of, request.cell_limit, told(gpu, job), gpu, shares)
        for job in range(1, request.jobs + 1)
        for gpu in request.gpus or (None,)
    ]


def _greet(hosts: Sequence[Host]) -> Header:
    """The header that all hosts give. Raises UserError where one takes no cells, or they differ."""
    for host in hosts:
        host.launch()
    first, *others = [host.greet() for host in hosts]
    for host, header in zip(hosts[1:], others, strict=True):
        if differing := difference(first, header):
            if host.gpu == hosts[0].gpu:
                raise UserError(f"the engine changed while the probes started: {differing}; sweep anew")
            each = f"{differing.one} on {hosts[0].gpu} and {differing.other} on {host.gpu}"
            raise UserError(
                f"--devices: {differing.field} is {each}; a table is of one kind of GPU: sweep each kind by itself"
            )
    return first


def _observe(hosts: Sequence[Host], wanted: Sequence[Run], kept: Journal, progress: Progress) -> None:
    keys = {(run.name, cell.id) for run in wanted for cell in run.cells}
    if foreign := kept.done - keys:
        _, cell = min(foreign)
        raise UserError(
            f"{kept.path}: holds {cell}, which is not in this sweep; "
            "resume with the same matrix and --only, or delete the file to sweep anew"
        )
    progress.begin(len(kept.done), len(keys))
    left = [
        Run(run.name, [cell for cell in run.cells if (run.name, cell.id) not in kept.done], run.fresh) for run in wanted
    ]
    try:
        with closing(conduct(hosts, left)) as finished:
            for entries in finished:
                kept.append(entries)
                progress.finished(len(kept.done))
    except KeyboardInterrupt:
        progress.note(
            f"interrupted: {len(kept.done)} of {len(keys)} cells are kept in {kept.path}; go on with --resume"
        )
        raise


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
    checks = request.checks
    return Header(
        SCHEMA,
        kaudit.__version__,
        stamp,
        hello.paths,
        str(request.shard or ""),
        checks.isolated,
        checks.sample,
        checks.seed,
        checks.repeat,
        request.numerics,
    )
