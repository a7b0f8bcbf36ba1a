"""`kaudit check TABLE…`: are these tables whole, and written as kaudit writes them?"""

from pathlib import Path
from typing import Annotated

import typer

from kaudit.errors import UserError, told_in


@told_in("docs/ci.md")
def check(
    tables: Annotated[list[Path], typer.Argument(metavar="TABLE…", help="Tables that kaudit sweep wrote.")],
) -> None:
    """Exit 2 on a table that is cut short, invalid or edited by hand."""
    from kaudit.check import faults

    if found := [fault for table in tables for fault in faults(table)]:
        raise UserError(*found)
