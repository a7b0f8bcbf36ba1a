"""The command line. Data goes to stdout, words to stderr; command bodies import what they need, so that help is quick.

Exit codes: 0 passed, 1 the gate failed, 2 the user can mend it, 3 a bug of ours, 130 interrupted.
"""

import shutil
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kaudit.commands.bench import bench
from kaudit.commands.check import check
from kaudit.commands.doctor import doctor
from kaudit.commands.explain import explain
from kaudit.commands.kernels import kernels
from kaudit.commands.matrix import matrix
from kaudit.commands.merge import merge
from kaudit.commands.options import MOST, Across, Csv, Only, Python, TableFile
from kaudit.commands.report import report
from kaudit.commands.sweep import sweep
from kaudit.errors import UserError, told_in
from kaudit.report.formats import Format, deliver
from kaudit.terminal import check_output, data, guarded, print_anywhere, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kaudit.observation import Row
    from kaudit.report.judged import Report
    from kaudit.table import Table

app = typer.Typer(
    name="kaudit",
    help="Which GPU kernel really ran for every cell of a matrix, why, and what changed.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Before = Annotated[Path, typer.Argument(metavar="BEFORE", help="The baseline table.")]
After = Annotated[Path, typer.Argument(metavar="AFTER", help="The table to hold against it.")]
Most = Annotated[int, typer.Option(min=0, help="Cells to list per kind of change.")]
Form = Annotated[Format, typer.Option("--format", help="What to write; text is for people.")]
Timed = Annotated[bool, typer.Option("--timing", help="Compare the times, too, that kaudit sweep --timing measured.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a file, not to stdout.")]


def _version(asked: bool) -> None:
    if asked:
        from kaudit.version import facts

        data(facts())
        raise typer.Exit


@app.callback()
def _kaudit(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the versions and exit.")
    ] = False,
) -> None:
    pass


app.command()(sweep)
app.command()(bench)


@app.command()
def engines(python: Python = sys.executable) -> None:
    """List the engines, which are installed, and which of those import."""
    from kaudit.engines import installed

    data(installed(python))


@app.command()
def show(
    table: TableFile,
    cell: Annotated[str | None, typer.Option(metavar="ID", help="Tell all that is known of one cell.")] = None,
    only: Only = None,
    where: Annotated[list[str] | None, typer.Option(metavar="AXIS=VALUE", help="Keep cells with that value.")] = None,
    op: Annotated[str | None, typer.Option(help="Only this op.")] = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,…", help="Which columns to print.")] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Print times, and what each op can cost its step.")] = False,
    csv: Csv = None,
) -> None:
    """Print a table, or the whole story of one cell."""
    from kaudit.measure import read_graphs, read_numbers, with_measures
    from kaudit.report import columns as report
    from kaudit.report.story import story
    from kaudit.report.text import unclassified
    from kaudit.show import select
    from kaudit.table import read

    check_output(csv, *with_measures(table))
    found = read(table)
    # Only a terminal has a width to keep to; a pipe gets each row on one line.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if timing or csv:
        if columns or cell is not None:
            option = "--timing" if timing else "--csv"
            raise UserError(f"{option}: has columns of its own, of all cells that --only names; leave out the other")
        _show_times(found, table, select(found, only, where or (), op), csv, width)
        return
    if cell is not None:
        data(story(found, cell, read_numbers(table), read_graphs(table)))
        return
    rows = select(found, only, where or (), op)
    chosen = report.choose(columns.split(",")) if columns else report.DEFAULT
    data(report.table(rows, chosen, found.header.paths).lines(width))
    words(unclassified(rows))


@told_in("docs/timing.md")
def _show_times(found: "Table", path: Path, rows: "Sequence[Row]", csv: Path | None, width: int | None) -> None:
    from kaudit.measure import measure_path, read_timings
    from kaudit.observation import WHOLE_CELL
    from kaudit.report.times import listing
    from kaudit.terminal import save
    from kaudit.timing_records import csv_lines, records

    wanted = {row.key for row in rows}
    wanted |= {(cell, WHOLE_CELL) for cell, _ in wanted}
    chosen = [record for record in records(found, read_timings(path)) if (record["cell"], record["op"]) in wanted]
    if not chosen:
        beside = measure_path(path)
        put = "" if beside.exists() else f"put {beside.name} beside it, or "
        raise UserError(f"{path}: nothing of that was timed; {put}sweep with --timing")
    if csv is None:
        data(listing(chosen).lines(width))
    else:
        save(csv, csv_lines(chosen))


@app.command()
def diff(
    before: Before,
    after: After,
    across: Across = False,
    timing: Timed = False,
    most: Most = MOST,
    form: Form = Format.text,
    output: Output = None,
) -> None:
    """Say what moved between two tables, and why."""
    from kaudit.measure import with_measures

    check_output(output, *with_measures(before, after))
    _deliver(_compared(before, after, across, timing, most), form, output)


@app.command()
def gate(
    before: Before,
    after: After,
    policy: Annotated[Path | None, typer.Option(help="YAML: which kinds of change fail.")] = None,
    waivers: Annotated[Path | None, typer.Option(help="YAML: changes let pass until a day.")] = None,
    expect: Annotated[str | None, typer.Option(metavar="MATRIX", help="Hold AFTER to its expect: rules, too.")] = None,
    across: Across = False,
    timing: Timed = False,
    most: Most = MOST,
    form: Form = Format.text,
    output: Output = None,
) -> None:
    """Exit 1 if a fast path was lost without a word.

    Fails on new silent and predicted fallbacks, contradictions, crashes, hangs, wrong results and unseen cells, unless
    the policy says otherwise. Exit codes: 0 passed, 1 failed, 2 mend what the line says, 3 a bug of kaudit, 130
    interrupted.
    """
    from msgspec.structs import replace

    from kaudit.expect import check_names, unmet
    from kaudit.gate import verdict
    from kaudit.matrix import load
    from kaudit.measure import with_measures
    from kaudit.policy import Policy, load_policy, load_waivers

    others = (policy, waivers, Path(expect) if expect else None)
    check_output(output, *with_measures(before, after), *(path for path in others if path))
    rules = load_policy(policy) if policy else Policy()
    timed = rules.kinds & {"slower", "faster"}
    if timed and not timing:
        raise UserError(f"--policy: fails on {' and '.join(sorted(timed))}, which only --timing looks for; add it")
    waived = load_waivers(waivers) if waivers else ()
    expectations = load(expect).expect if expect else ()
    found = _compared(before, after, across, timing, most, judged=bool(timed))
    check_names(expectations, found.before, found.after)
    judged = verdict(found.changes, rules, waived, date.today())
    found = replace(found, verdict=judged, unmet=tuple(unmet(found.after, expectations)))
    _deliver(found, form, output)
    if not found.passed:
        raise typer.Exit(1)


def _compared(before: Path, after: Path, across: bool, timing: bool, most: int, judged: bool = False) -> "Report":
    """`judged`: the times decide, so that there have to be some to compare."""
    from kaudit.diff import changes, comparable
    from kaudit.measure import read_timings
    from kaudit.report.judged import Report
    from kaudit.table import read
    from kaudit.timing_diff import timed_changes

    tables = read(before), read(after)
    context = comparable(*tables, across)
    found = list(changes(*tables, across))
    if timing:
        slower_or_faster, told = timed_changes(*tables, read_timings(before), read_timings(after), judged)
        context, found = (*context, *told), [*found, *slower_or_faster]
    words(context)
    return Report(*tables, after, context, tuple(found), most)


def _deliver(found: "Report", form: Format, output: Path | None) -> None:
    from kaudit.report import text

    deliver(found, form, output)
    words(text.verdict(found))


app.command()(check)
app.command()(doctor)
app.command()(explain)
app.command()(kernels)
app.add_typer(matrix, name="matrix")
app.command()(merge)
app.command()(report)


def main() -> None:
    print_anywhere()
    sys.exit(guarded(lambda: app(standalone_mode=False)))
