"""pydantic's errors as lines for people: where in the file, what is wrong, what to do."""

from difflib import get_close_matches

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from kaudit.matrix.marks import Fault, Marked, Path
from kaudit.matrix.schema import AxesFile, ExpectFile, ForbidFile, MatrixFile
from kaudit.matrix.values import ConfigHeads, ModelHeads, ShapeItem, ShapesByPhase

_MODELS: dict[str, type[BaseModel]] = {
    "axes": AxesFile,
    "forbid": ForbidFile,
    "expect": ExpectFile,
    "<model>": ModelHeads,
    "<config>": ConfigHeads,
    "<item>": ShapeItem,
    "<phases>": ShapesByPhase,
}
"""The model that a step of pydantic's location leads into: a field's name or a union's tag."""

_NEEDS = {
    "string_type": "text; put it in quotes if text is meant",
    "int_type": "a whole number",
    "tuple_type": "a list, as in [a, b]",
    "dict_type": "a mapping, as in {key: value}",
    "model_type": "a mapping, as in {key: value}",
    "too_short": "at least one entry",
    "string_too_short": "some text",
    "greater_than": "at least 1",
    "greater_than_equal": "at least 0",
}


def fault_of(error: ErrorDetails, marked: Marked) -> Fault:
    """The fault at its value's place; for an unknown key at the key's; for a missing one at the mapping's."""
    loc = error["loc"]
    path = _path(loc, marked)
    if loc and (loc[-1] == "[key]" or error["type"] == "extra_forbidden"):
        return Fault(*marked.keys[path], _text(error))
    return Fault(*marked.places[path], _text(error))


def _path(loc: tuple[int | str, ...], marked: Marked) -> Path:
    """pydantic's location without what the file does not have: union tags, keys that are missing."""
    path: Path = ()
    for step in loc:
        if (*path, step) in marked.places:
            path = (*path, step)
    return path


def _text(error: ErrorDetails) -> str:
    name = next(
        (str(step) for step in reversed(error["loc"]) if isinstance(step, str) and not step.startswith(("<", "["))),
        "matrix",
    )
    match error["type"]:
        case "missing":
            return f'"{name}" is missing; add it'
        case "extra_forbidden":
            return _unknown_key(error)
        case "value_error":
            return str(error["ctx"]["error"])
        case "literal_error":
            return (
                f"{name} {_shown(error['input'])} is not one of {_listed(error['ctx']['expected'])}; write one of them"
            )
        case kind if kind in _NEEDS:
            return f"{name} is {_shown(error['input'])}, needs {_NEEDS[kind]}"
        case _:
            return f"{name} is {_shown(error['input'])}: {error['msg']}"


def _unknown_key(error: ErrorDetails) -> str:
    *into, key = error["loc"]
    model = next((_MODELS[step] for step in reversed(into) if isinstance(step, str) and step in _MODELS), MatrixFile)
    known = list(model.model_fields)
    near = get_close_matches(str(key), known, n=1)
    return f'unknown key "{key}"; ' + (f'did you mean "{near[0]}"?' if near else f"it may be: {', '.join(known)}")


def _listed(expected: str) -> str:
    """`'a', 'b' or 3` as `a, b, 3`."""
    return expected.replace(" or ", ", ").replace("'", "")


def _shown(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case None:
            return "empty"
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "a mapping" if value else "an empty mapping"
        case _:
            return str(value)
