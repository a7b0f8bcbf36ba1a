"""The values of a matrix file, as pydantic types: strict, each token read by the parsers of cell.py."""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    PlainValidator,
    PositiveInt,
    Tag,
    ValidationInfo,
    model_validator,
)

from kaudit.cell import Feature, Heads, Layout, Mask, Rope, Shape, parse_features
from kaudit.matrix.heads import from_config, from_preset, split
from kaudit.matrix.lengths import Length, ShapeSpec
from kaudit.matrix.rules import AXES_OF
from kaudit.strict_yaml.types import Some, Strict


def _token(parse: Callable[[str], Any]) -> PlainValidator:
    """A validator that reads a token of a cell id."""

    def read(value: object) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not text; write a token as in a cell id")
        if len(value) > 100:
            raise ValueError(f'"{value[:20]}..." is {len(value)} characters long; write a token as in a cell id')
        return parse(value)

    return PlainValidator(read)


def _length(value: object) -> Length:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a number of tokens, nor page, window or max")
    return Length.parse(value)


def _key(key: str) -> str:
    if key not in AXES_OF:
        near = get_close_matches(key, AXES_OF, n=1)
        may_be = f'did you mean "{near[0]}"?' if near else f"it may be: {', '.join(AXES_OF)}"
        raise ValueError(f'unknown axis "{key}"; {may_be}')
    return key


def _patterns(value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    if not given or not all(isinstance(item, str) or type(item) is int for item in given):
        raise ValueError(f"{value!r} is not a value or a list of values; write text or whole numbers, truths in quotes")
    return tuple(str(item) for item in given)


class ModelHeads(Strict):
    """Heads of a shipped model preset, on one of `tp` ranks."""

    model: str
    tp: PositiveInt = 1

    def heads(self, _: Path) -> Heads:
        return split(from_preset(self.model), self.tp)


class ConfigHeads(Strict):
    """Heads of a Hugging Face config.json, relative to the matrix file, on one of `tp` ranks."""

    config: str
    tp: PositiveInt = 1

    def heads(self, folder: Path) -> Heads:
        return split(from_config(folder / self.config), self.tp)


def _resolved(item: ModelHeads | ConfigHeads, info: ValidationInfo) -> Heads:
    folder: Any = info.context
    return item.heads(folder)


class ShapeItem(Strict):
    """A shape with symbolic lengths."""

    batch: PositiveInt
    q_len: Annotated[Length, PlainValidator(_length)]
    kv_len: Annotated[Length, PlainValidator(_length)]
    lengths: Literal["even", "skewed"] = "even"

    @model_validator(mode="after")
    def _not_circular(self) -> Self:
        if self.kv_len.of == "kv_len":
            raise ValueError("kv_len is given in terms of itself; write a number, page, window or max")
        return self

    def spec(self) -> ShapeSpec:
        return ShapeSpec(self.batch, self.q_len, self.kv_len, self.lengths == "skewed")


def _heads_form(value: object) -> str:
    if not isinstance(value, dict):
        return "<token>"
    return "<config>" if "config" in value else "<model>"


HeadsValue = Annotated[
    Annotated[Heads, _token(Heads.parse), Tag("<token>")]
    | Annotated[ModelHeads, AfterValidator(_resolved), Tag("<model>")]
    | Annotated[ConfigHeads, AfterValidator(_resolved), Tag("<config>")],
    Discriminator(_heads_form),
]
ShapeValue = Annotated[
    Annotated[ShapeSpec, _token(lambda token: ShapeSpec.of(Shape.parse(token))), Tag("<token>")]
    | Annotated[ShapeItem, AfterValidator(ShapeItem.spec), Tag("<item>")],
    Discriminator(lambda value: "<item>" if isinstance(value, dict) else "<token>"),
]
LayoutValue = Annotated[Layout, _token(Layout.parse)]
MaskValue = Annotated[Mask, _token(Mask.parse)]
RopeValue = Annotated[Rope, _token(Rope.parse)]
FeaturesValue = Annotated[tuple[Feature, ...], _token(parse_features)]
WhenValue = dict[Annotated[str, AfterValidator(_key)], Annotated[tuple[str, ...], PlainValidator(_patterns)]]


class ShapesByPhase(Strict):
    """Shapes that belong to one phase each; a phase left out has none."""

    prefill: Some[ShapeValue] = ()
    chunked_prefill: Some[ShapeValue] = ()
    decode: Some[ShapeValue] = ()
    mixed: Some[ShapeValue] = ()


ShapesValue = Annotated[
    Annotated[Some[ShapeValue], Tag("<all>")] | Annotated[ShapesByPhase, Tag("<phases>")],
    Discriminator(lambda value: "<phases>" if isinstance(value, dict | ShapesByPhase) else "<all>"),
]
