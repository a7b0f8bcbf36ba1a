"""In what two headers differ, field by field."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from kaudit.table import Header


class Difference(NamedTuple):
    """A field by its dotted name, as in `stamp.versions.torch`, with the values of the two."""

    field: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.field} was {self.one}, is now {self.other}"


def difference(one: Header, other: Header) -> Difference | None:
    """The first field in which two headers differ."""
    of_one, of_other = dict(_flat(one)), dict(_flat(other))
    for field in of_one | of_other:
        if of_one.get(field) != of_other.get(field):
            return Difference(field, *(_text(of.get(field)) for of in (of_one, of_other)))
    return None


def _flat(value: Struct | Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in (asdict(value) if isinstance(value, Struct) else value).items():
        if isinstance(inner, (Struct, Mapping)):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield prefix + key, inner


def _text(value: object) -> str:
    return "not set" if value in (None, "") else ", ".join(value) if isinstance(value, tuple) else str(value)
