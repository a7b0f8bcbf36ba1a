"""The arguments and options that several commands share, each said once."""

from pathlib import Path
from typing import Annotated

import typer

MatrixFile = Annotated[
    str, typer.Argument(metavar="MATRIX", help="A YAML file, or a shipped one: smoke, release, sdpa…")
]
TableFile = Annotated[Path, typer.Argument(metavar="TABLE", help="A table that kaudit sweep wrote.")]
Across = Annotated[bool, typer.Option(help="Compare the cells that two different matrices or GPUs share.")]
Only = Annotated[str | None, typer.Option(metavar="GLOB", help="Only the cells whose id matches.")]
MaxCells = Annotated[int, typer.Option(min=1, help="Refuse a larger matrix.")]
