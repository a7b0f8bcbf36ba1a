"""A matrix file, or the name of a shipped one, to a Matrix; or all its faults at once."""

from importlib.resources import as_file, files
from pathlib import Path

from pydantic import ValidationError

from kaudit.errors import UserError
from kaudit.matrix.faults import fault_of
from kaudit.matrix.files import read_text
from kaudit.matrix.marks import Fault, Marked, read_yaml
from kaudit.matrix.model import Matrix
from kaudit.matrix.schema import MatrixFile
from kaudit.matrix.space import stale_patterns


def load(source: str) -> Matrix:
    """Read a shipped matrix by name (`smoke`), else a file by path. Raises UserError, a line for each fault."""
    folder = files("kaudit_matrices")
    shipped = sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))
    if source in shipped:
        with as_file(folder / f"{source}.yaml") as path:
            return _parse(read_text(path), path)
    path = Path(source)
    try:
        text = read_text(path)
    except ValueError as error:
        hint = "" if path.suffix in (".yaml", ".yml") else f" or a shipped matrix: {', '.join(shipped)}"
        raise UserError(f"{error}{hint}") from None
    return _parse(text, path)


def _parse(text: str, path: Path) -> Matrix:
    marked = read_yaml(text, str(path))
    faults = marked.faults
    matrix = None
    try:
        matrix = MatrixFile.model_validate(marked.data, context=path.parent).matrix(path.stem)
        faults += _stale(matrix, marked)
    except ValidationError as error:
        known = {(fault.line, fault.column) for fault in faults}
        found = {fault_of(details, marked) for details in error.errors(include_url=False)}
        faults += [fault for fault in found if (fault.line, fault.column) not in known]
    if faults or matrix is None:
        raise UserError(*(fault.at(str(path)) for fault in sorted(faults)))
    return matrix


def _stale(matrix: Matrix, marked: Marked) -> list[Fault]:
    """Patterns that can never fit: a typing error, or a rule that outlived its axis value."""
    return [
        Fault(*marked.places[section, index, "when", key], text)
        for section, whens in (
            ("forbid", [rule.when for rule in matrix.forbid]),
            ("expect", [rule.when for rule in matrix.expect]),
        )
        for index, when in enumerate(whens)
        for key, text in stale_patterns(matrix, when)
    ]
