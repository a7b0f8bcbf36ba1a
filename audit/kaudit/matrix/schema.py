"""What a matrix file may say, as pydantic models; and how the file becomes a Matrix."""

from typing import Annotated, Literal, Self, cast, get_args

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator, model_validator

from kaudit.cell import DType, Heads, Layout, Mask, Phase, Rope
from kaudit.matrix.lengths import Length, ShapeSpec
from kaudit.matrix.model import Axes, Block, Cover, KvChoice, Matrix, ShapeChoice
from kaudit.matrix.rules import Expectation, Forbid, When
from kaudit.matrix.values import (
    FeaturesValue,
    HeadsValue,
    LayoutValue,
    MaskValue,
    RopeValue,
    ShapesByPhase,
    ShapesValue,
    WhenValue,
)
from kaudit.strict_yaml.types import Many, Some, Strict, Text

DEFAULT_SHAPES: dict[Phase, ShapeSpec] = {
    "prefill": ShapeSpec(1, Length(128), Length(128)),
    "chunked_prefill": ShapeSpec(1, Length(128), Length(1024)),
    "decode": ShapeSpec(8, Length(1), Length(1024)),
    "mixed": ShapeSpec(8, Length(128), Length(1024)),
}
"""The shape of each phase where a file has no shape axis."""


class AxesFile(Strict):
    """The axes, and the one value that each has where a file leaves it out; for no shape, see DEFAULT_SHAPES."""

    phase: Some[Phase] = ("prefill",)
    dtype: Some[DType] = ("bf16",)
    kv_dtype: Some[KvChoice] = ("same",)
    heads: Some[HeadsValue] = (Heads(32, 8, 128, 128),)
    kv_layout: Some[LayoutValue] = (Layout("contiguous"),)
    mask: Some[MaskValue] = (Mask("causal"),)
    rope: Some[RopeValue] = (Rope("neox"),)
    features: Some[FeaturesValue] = ((),)
    shape: ShapesValue = ()

    @field_validator("shape")
    @classmethod
    def _each_phase_has_shapes(cls, shapes: object, info: ValidationInfo) -> object:
        if isinstance(shapes, ShapesByPhase) and "phase" in info.data:
            listed = set(info.data["phase"])
            for phase in get_args(Phase):
                if phase in listed and not getattr(shapes, phase):
                    raise ValueError(f"shape has no shapes for phase {phase}; list some under {phase}:")
                if phase not in listed and getattr(shapes, phase):
                    raise ValueError(f"shape has shapes for {phase}, which phase does not list; list it or remove them")
        return shapes

    def read(self) -> Axes:
        """The casts say what pydantic's after-validators have done and its types cannot tell."""
        phases = tuple(dict.fromkeys(self.phase))
        specs: dict[ShapeSpec, list[Phase]] = {}
        for phase in phases:
            for spec in self._shapes_of(phase):
                specs.setdefault(spec, []).append(phase)
        return Axes(
            phases,
            tuple(dict.fromkeys(self.dtype)),
            tuple(dict.fromkeys(self.kv_dtype)),
            tuple(dict.fromkeys(cast(tuple[Heads, ...], self.heads))),
            tuple(dict.fromkeys(self.kv_layout)),
            tuple(dict.fromkeys(self.mask)),
            tuple(dict.fromkeys(self.rope)),
            tuple(dict.fromkeys(self.features)),
            tuple(ShapeChoice(spec, tuple(dict.fromkeys(listed))) for spec, listed in specs.items()),
        )

    def _shapes_of(self, phase: Phase) -> tuple[ShapeSpec, ...]:
        if self.shape == ():
            return (DEFAULT_SHAPES[phase],)
        listed = getattr(self.shape, phase) if isinstance(self.shape, ShapesByPhase) else self.shape
        return cast(tuple[ShapeSpec, ...], listed)


class ForbidFile(Strict):
    """One rule of `forbid:`."""

    when: Annotated[WhenValue, Field(min_length=1)]
    because: Text

    def read(self) -> Forbid:
        return Forbid(_when(self.when), self.because)


class ExpectFile(Strict):
    """One rule of `expect:`."""

    when: WhenValue
    op: str = "attention"
    path: str | None = None
    family: str | None = None
    refuses: Literal[True] | None = None
    most_launches: NonNegativeInt | None = None
    because: Text | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        said = [name for name in ("path", "family", "refuses") if getattr(self, name) is not None]
        if len(said) > 1:
            raise ValueError(f"{' and '.join(said)} stand together; write one rule for each")
        if not said and self.most_launches is None:
            raise ValueError("the rule expects nothing; add path, family, refuses: true or most_launches")
        if self.refuses and self.most_launches is not None:
            raise ValueError("refuses and most_launches stand together; what is refused launches nothing")
        return self

    def read(self) -> Expectation:
        when, refuses = _when(self.when), self.refuses is True
        return Expectation(when, self.op, self.path, self.family, refuses, self.most_launches, self.because or "")


class BlockFile(Strict):
    """One block of `also:`."""

    cover: Cover = "full"
    axes: AxesFile

    def read(self) -> Block:
        return Block(self.axes.read(), self.cover)


class MatrixFile(BlockFile):
    """A whole file. `max_len` is what `max` stands for in a length, in tokens; `numerics`, whether results are checked
    where the command line does not say."""

    name: Text | None = None
    max_len: PositiveInt = 8192
    numerics: bool = False
    also: Many[BlockFile] = ()
    forbid: Many[ForbidFile] = ()
    expect: Many[ExpectFile] = ()

    def matrix(self, name: str) -> Matrix:
        """`name`: what the matrix is called where the file does not say."""
        forbid = tuple(rule.read() for rule in self.forbid)
        expect = tuple(rule.read() for rule in self.expect)
        also = tuple(block.read() for block in self.also)
        axes = self.axes.read()
        return Matrix(self.name or name, axes, forbid, expect, self.cover, self.max_len, also, self.numerics)


def _when(given: dict[str, tuple[str, ...]]) -> When:
    """Feature sets are brought into the one order that cells have them in."""
    return When(
        tuple(
            (key, tuple("+".join(sorted(p.split("+"))) if key == "features" else p for p in patterns))
            for key, patterns in given.items()
        )
    )
