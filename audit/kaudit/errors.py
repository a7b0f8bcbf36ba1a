"""What a user can mend: one line each, never a traceback."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class UserError(Exception):
    """Something the user can mend. Ends the command with exit code 2, one printed line per fault.

    Each line says what is wrong, where, and what to do, e.g.
    `release.yaml:12:5: dtype "bf17" is not one of fp32, fp16, bf16, fp8_e4m3; write one of them`.
    """

    page = ""
    """The page of the docs that has more on it."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults: Sequence[str] = faults


class ProbeError(Exception):
    """The probe broke its contract: kaudit's own fault, never the user's. Ends the command with exit code 3."""


@contextmanager
def told_in(page: str) -> Iterator[None]:
    """What the user has to mend in this block, or function, is told in that page; the innermost page is the nearest."""
    try:
        yield
    except UserError as error:
        error.page = error.page or page
        raise
