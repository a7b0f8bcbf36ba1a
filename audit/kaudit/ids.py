"""Cell ids as a table holds them: text, which an editor or a merge may have spoilt."""

from collections.abc import Iterator
from contextlib import contextmanager

from kaudit.errors import UserError, told_in


@contextmanager
@told_in("docs/table.md")
def cells_read() -> Iterator[None]:
    """Around the reading of ids: the ValueError of one that is none becomes a UserError."""
    try:
        yield
    except ValueError as error:
        what = " ".join(str(error).split())
        raise UserError(f"a table holds what is no cell: {what}; restore it or sweep again") from None
