"""The arguments and options that several commands share, each said once."""

from pathlib import Path
from typing import Annotated

import typer

MOST = 5
"""Cells to list per kind of change, if nobody says otherwise."""

MatrixFile = Annotated[
    str, typer.Argument(metavar="MATRIX", help="A YAML file, or a shipped one: smoke, release, sdpa…")
]
TableFile = Annotated[Path, typer.Argument(metavar="TABLE", help="A table that kaudit sweep wrote.")]
Across = Annotated[bool, typer.Option(help="Compare the cells that two different matrices or GPUs share.")]
Only = Annotated[str | None, typer.Option(metavar="GLOB", help="Only the cells whose id matches.")]
MaxCells = Annotated[int, typer.Option(min=1, help="Refuse a larger matrix.")]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write the times, with all that they hang on, as CSV.")
]
Python = Annotated[str, typer.Option(metavar="PATH", show_default="this one", help="The Python that has the engine.")]
