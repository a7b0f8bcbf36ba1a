"""A YAML file to a pydantic model."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from kaudit.errors import UserError
from kaudit.small_files import read_text
from kaudit.strict_yaml.faults import fault_of
from kaudit.strict_yaml.marks import Fault, Marked, read_yaml

Model = TypeVar("Model", bound=BaseModel)


def _nothing(_: BaseModel, __: Marked) -> Iterable[Fault]:
    return ()


def read_model(
    path: Path, model: type[Model], check: Callable[[Model, Marked], Iterable[Fault]] = _nothing, hint: str = ""
) -> Model:
    """Raises UserError with a line for each fault, in the file's order.

    `check` finds faults that show only once the whole is read. `hint` ends the line about a file that cannot be read.
    The model's validators get the file's folder as their context, for the files that this one names.
    """
    try:
        marked = read_yaml(read_text(path), str(path))
    except ValueError as error:
        raise UserError(f"{error}{hint}") from None
    faults = set(marked.faults)
    try:
        # An empty file leaves everything out.
        read = model() if marked.data is None else model.model_validate(marked.data, context=path.parent)
        faults.update(check(read, marked))
    except ValidationError as error:
        # Where the text itself is at fault, what a model makes of it is no news.
        known = {(fault.line, fault.column) for fault in faults}
        found = {fault_of(details, model, marked) for details in error.errors(include_url=False)}
        faults.update(fault for fault in found if (fault.line, fault.column) not in known)
    if faults:
        raise UserError(*(fault.at(str(path)) for fault in sorted(faults)))
    return read
