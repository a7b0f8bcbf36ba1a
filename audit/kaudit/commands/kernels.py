"""`kaudit kernels`: the paths of an engine, what each needs, and which of them serves a cell."""

import shutil
import sys
from typing import Annotated

import typer

from kaudit.commands.options import Python
from kaudit.errors import told_in
from kaudit.terminal import data

WIDTH = 120
"""Characters of a line where no terminal says how many it has."""


@told_in("docs/kernels.md")
def kernels(
    op: Annotated[str | None, typer.Argument(metavar="[OP]", help="Only this op.")] = None,
    engine: Annotated[str, typer.Option(help="A listed engine, or your own package.module:Class.")] = "reference",
    cell: Annotated[str | None, typer.Option(metavar="ID", help="Say which kernel serves it, and why.")] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda; one that need not be there: sm_90… Tells what never runs on it.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    python: Python = sys.executable,
) -> None:
    """Print an engine's kernels per op, fastest first, and what each needs. Runs none of them.

    An engine that states no needs is listed by the names of its paths. What really ran, kaudit sweep tells.
    """
    import msgspec
    from msgspec.structs import replace

    from kaudit.catalogue import catalogue
    from kaudit.report.catalogue import lines

    found = catalogue(python, engine, device, cell, op)
    if as_json:
        kept = replace(found, paths=found.of(op)) if op else found
        data(msgspec.json.format(msgspec.json.encode(kept)).decode().splitlines())
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    data(lines(found, op, width))
