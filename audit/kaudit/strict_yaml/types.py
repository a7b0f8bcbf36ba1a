"""Types that the models of several files share; pydantic's strict mode leaves YAML's lists to us."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

T = TypeVar("T")

Many = Annotated[tuple[T, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
Some = Annotated[Many[T], Field(min_length=1)]

Text = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1),
    AfterValidator(lambda text: " ".join(text.split())),
]
"""One line of prose, however YAML folds it."""


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
