"""A table to write, looked at before anything starts: an hour's work must not end in what a glance can tell."""

from pathlib import Path

from kaudit.errors import UserError, told_in
from kaudit.measure import measure_path
from kaudit.terminal import check_output


@told_in("docs/capture.md")
def check_table(out: Path, *read: Path) -> None:
    """A table and its measures can be written there, over nothing that is `read`. Raises UserError."""
    _check(out, *read)
    _check(measure_path(out), *read)
    if not out.name.endswith(".jsonl"):  # measures are named after it: those of `t` and of `t.jsonl` would be one file
        raise UserError(f"{out}: is no table's name; choose an --out that ends in .jsonl")


def _check(path: Path, *read: Path) -> None:
    check_output(path, *read)
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is no regular file, and would be replaced by one; choose another --out")
