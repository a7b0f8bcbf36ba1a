"""`kaudit matrix MATRIX`, and what makes matrices: `kaudit matrix from-config CONFIG`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kaudit.commands.options import MatrixFile, MaxCells, Only
from kaudit.errors import UserError, told_in
from kaudit.terminal import check_output, data, save, words

CELLS = "cells"
"""The command that stands in where none is named."""


class _CellsByDefault(TyperGroup):
    """`kaudit matrix smoke` is `kaudit matrix cells smoke`; a file of a command's name is named `./cells`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = [CELLS, *args]
        return super().parse_args(ctx, args)


matrix = typer.Typer(
    cls=_CellsByDefault,
    help="Print the cells of a matrix: kaudit matrix MATRIX. Or make one.",
    rich_markup_mode=None,
)


@matrix.command(CELLS)
def cells(
    source: MatrixFile,
    max_cells: MaxCells = 1_000_000,
    only: Only = None,
) -> None:
    """Print the cells of a matrix, and what is left out. The word cells may be left out, too."""
    from kaudit.matrix import expand, load
    from kaudit.report.matrix import matrix_text

    listed, account = matrix_text(expand(load(source), max_cells).only(only))
    data(listed)
    words(account)


@matrix.command("from-config")
@told_in("docs/matrix.md")
def from_config(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A Hugging Face config.json.")],
    tp: Annotated[str, typer.Option(metavar="N,N,…", help="Tensor-parallel ranks to split the heads over.")] = "1",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a file, not to stdout.")] = None,
) -> None:
    """Make the matrix of a model: the cells that serving it comes to. What no cell can say of it is said on stderr."""
    from kaudit.hf_config import name_of, read_model
    from kaudit.matrix.written import matrix_yaml

    check_output(out, config)
    ranks = [_rank(given) for given in tp.split(",")]
    try:
        model = read_model(config)
    except ValueError as error:
        raise UserError(str(error)) from None
    try:
        text, notes = matrix_yaml(model, name_of(config) or model.kind, ranks)
    except ValueError as error:
        raise UserError(f"{config}: {error}") from None
    if out is None:
        data(text.splitlines())
    else:
        save(out, text.splitlines())
    words(f"not in the cells: {note}" for note in notes)


def _rank(given: str) -> int:
    if not given.strip().isascii() or not given.strip().isdigit() or int(given) < 1:
        raise UserError(f'--tp: "{given}" is not a number of ranks; write numbers with commas, as in 1,2,4,8')
    return int(given)
