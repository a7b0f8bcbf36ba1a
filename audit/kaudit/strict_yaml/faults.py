"""pydantic's errors as lines for people: where in the file, what is wrong, what to do."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import get_args

from pydantic import BaseModel, RootModel, Tag
from pydantic_core import ErrorDetails

from kaudit.strict_yaml.marks import Fault, Marked, Path

_NEEDS = {
    "string_type": "text; put it in quotes if text is meant",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "date_type": "a day, as in 2026-12-31",
    "tuple_type": "a list, as in [a, b]",
    "dict_type": "a mapping, as in {key: value}",
    "model_type": "a mapping, as in {key: value}",
    "too_short": "at least one entry",
    "string_too_short": "some text",
    "greater_than": "at least 1",
    "greater_than_equal": "at least 0",
}


def fault_of(error: ErrorDetails, model: type[BaseModel], marked: Marked) -> Fault:
    """The fault at its value's place; for an unknown key at the key's; for a missing one at the mapping's.

    `model` is that of the whole file.
    """
    loc = error["loc"]
    path = _path(loc, marked)
    if error["type"] == "extra_forbidden":
        return Fault(*marked.keys[path], _unknown_key(str(loc[-1]), _model_at(loc, model)))
    if loc and loc[-1] == "[key]":
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
        "the entry" if error["loc"] else "the file",
    )
    match error["type"]:
        case "missing":
            return f'"{name}" is missing; add it'
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


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    known = list(model.model_fields)
    near = get_close_matches(key, known, n=1)
    return f'unknown key "{key}"; ' + (f'did you mean "{near[0]}"?' if near else f"it may be: {', '.join(known)}")


def _model_at(loc: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """The innermost model on the way to a location."""
    # The one field of a root model is the file itself, and no step.
    for step in ("root", *loc) if issubclass(model, RootModel) else loc:
        model = dict(_inner(model)).get(step, model)
    return model


def _inner(model: type[BaseModel]) -> Iterator[tuple[int | str, type[BaseModel]]]:
    """The models in a model's fields, by the step of a location that leads there: a field's name, or a union's tag."""
    for name, field in model.model_fields.items():
        yield from _within(field.annotation, name)


def _within(annotation: object, step: str) -> Iterator[tuple[int | str, type[BaseModel]]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield step, annotation
    for mark in getattr(annotation, "__metadata__", ()):
        step = mark.tag if isinstance(mark, Tag) else step
    for argument in get_args(annotation):
        yield from _within(argument, step)


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
