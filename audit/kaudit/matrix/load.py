"""A matrix file, or the name of a shipped one, to a Matrix; or all its faults at once."""

from collections.abc import Iterator
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path

from kaudit.errors import UserError, told_in
from kaudit.matrix.model import Matrix
from kaudit.matrix.schema import MatrixFile
from kaudit.matrix.space import MOST_LOOKS, looks, stale_patterns
from kaudit.strict_yaml import read_model
from kaudit.strict_yaml.marks import Fault, Marked


@told_in("docs/matrix.md")
def load(source: str) -> Matrix:
    """Read a shipped matrix by name (`smoke`), else a file by path. Raises UserError, a line for each fault."""
    folder = files("kaudit_matrices")
    shipped = sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))
    if source in shipped:
        with as_file(folder / f"{source}.yaml") as path:
            return _read(path)
    path = Path(source)
    return _read(path, "" if path.suffix in (".yaml", ".yml") else f" or a shipped matrix: {', '.join(shipped)}")


def _read(path: Path, hint: str = "") -> Matrix:
    return read_model(path, MatrixFile, partial(_stale, path), hint).matrix(path.stem)


def _stale(path: Path, file: MatrixFile, marked: Marked) -> Iterator[Fault]:
    """Patterns that can never fit: a typing error, or a rule that outlived its axis value.

    Raises UserError where the axes are so long that to look would take minutes.
    """
    matrix = file.matrix("")
    if (count := looks(matrix)) > MOST_LOOKS:
        raise UserError(
            f"{path}: its rules would look at {count} combinations, at most {MOST_LOOKS}; "
            "list fewer values, rules or blocks, or split the matrix"
        )
    whens = {"forbid": [rule.when for rule in matrix.forbid], "expect": [rule.when for rule in matrix.expect]}
    for section, of_rules in whens.items():
        for index, when in enumerate(of_rules):
            for key, text in stale_patterns(matrix, when):
                yield Fault(*marked.places[section, index, "when", key], text)
