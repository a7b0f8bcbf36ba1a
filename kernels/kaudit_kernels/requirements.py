"""The words in which a kernel states its needs. One object is the check, the message and the documentation:

>>> str(page_size.multiple_of(16))
'page_size is a multiple of 16'
>>> str(page_size.multiple_of(16).check(problem))
'page_size=8, needs a multiple of 16'
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from kaudit_kernels.problem import Feature, Problem


@dataclass(frozen=True)
class Unmet:
    """A requirement that a problem does not meet.

    `worth` tells apart what would be wrong or not launch (False) from what runs, but the next kernel is faster (True).
    """

    axis: str
    seen: str
    needed: str
    worth: bool = False

    def __str__(self) -> str:
        return f"{self.axis}={self.seen}, {'pays with' if self.worth else 'needs'} {self.needed}"


@dataclass(frozen=True)
class Requirement:
    """What one axis of a problem has to be, alone or beside other axes of the same problem."""

    axis: str
    needed: str
    """Completes the sentence "page_size is ...", and names the other axes where there are some."""
    holds: Callable[..., bool] = field(compare=False, repr=False)
    """Takes the value of the axis, then those of `beside`."""
    beside: tuple[str, ...] = ()
    bounds: tuple[str | int, ...] = ()
    """Values at which it turns, or begins to hold: what one who looks for its domain tries first."""
    show: Callable[[Any], str] = field(default=str, compare=False, repr=False)
    """What an offending value is called in the message."""
    told: str = ""
    """What the message says in the place of `needed`, where it can be shorter; the values of `beside` follow."""

    def check(self, problem: Problem, worth: bool = False) -> Unmet | None:
        """What of it the problem does not meet; None if it meets it. `worth`: whether it stands there for its speed."""
        return self.against(*(getattr(problem, axis) for axis in (self.axis, *self.beside)), worth=worth)

    def against(self, seen: Any, *beside: Any, worth: bool = False) -> Unmet | None:
        """As check, of the axis's value alone, and those of `beside`."""
        if self.holds(seen, *beside):
            return None
        said = " and ".join(f"{axis}={value}" for axis, value in zip(self.beside, beside, strict=True))
        return Unmet(self.axis, self.show(seen), " ".join(filter(None, (self.told or self.needed, said))), worth)

    def when(self, *others: "Requirement") -> "Requirement":
        """The same, asked only of problems that meet all of `others`. Each of them looks at one axis alone."""
        return replace(
            self,
            needed=f"{self.needed} when {' and '.join(map(str, others))}",
            holds=lambda seen, *beside: (
                self.holds(seen) or not all(other.holds(value) for other, value in zip(others, beside, strict=True))
            ),
            beside=tuple(other.axis for other in others),
            told=f"{self.needed} for",
        )

    def __str__(self) -> str:
        return f"{self.axis} is {self.needed}"


@dataclass(frozen=True)
class Axis:
    """Any axis: one of some values, or the same as another axis."""

    name: str

    def any(self) -> Requirement:
        """Whatever it is: what an op does not look at is stated, too."""
        return Requirement(self.name, "any", lambda _: True)

    def one_of(self, *values: str | int) -> Requirement:
        """One of these and no other."""
        listed = ", ".join(map(str, values))
        needed = f"one of {listed}" if len(values) > 1 else listed
        return Requirement(self.name, needed, lambda seen: seen in values, bounds=values)

    def same_as(self, other: str, *values: str) -> Requirement:
        """As the axis `other`, or one of the values."""
        told = f"{', '.join(values)} or the same as" if values else "the same as"
        return Requirement(
            self.name,
            f"{told} {other}",
            lambda seen, beside: seen == beside or seen in values,
            (other,),
            values,
            told=told,
        )


@dataclass(frozen=True)
class Number(Axis):
    """An axis that counts."""

    def at_least(self, limit: int) -> Requirement:
        """`limit` or more."""
        return Requirement(self.name, f"at least {limit}", lambda seen: seen >= limit, bounds=(limit,))

    def at_most(self, limit: int) -> Requirement:
        """`limit` or less."""
        return Requirement(self.name, f"at most {limit}", lambda seen: seen <= limit, bounds=(limit,))

    def multiple_of(self, factor: int) -> Requirement:
        """A whole number of times `factor`; 0 is one, too: what is not paged has a page size of 0."""
        return Requirement(self.name, f"a multiple of {factor}", lambda seen: seen % factor == 0, bounds=(factor,))

    def divides(self, other: str) -> Requirement:
        """The axis `other` is a whole number of times this one, which is not 0."""
        told = "a divisor of"
        return Requirement(self.name, f"{told} {other}", lambda seen, beside: beside % seen == 0, (other,), told=told)


@dataclass(frozen=True)
class Names:
    """An axis that is a set of names, each of which is denied unless named here."""

    name: str
    known: tuple[str, ...]
    """All names that there are: what is denied can be listed."""

    def only(self, *names: str) -> Requirement:
        """No name but these. Told by those taken or by those denied, as is shorter; the message names the offenders."""
        taken, denied = ", ".join(names), ", ".join(each for each in self.known if each not in names)
        shorter = min(f"none but {taken}", f"any but {denied}", key=len)
        needed = shorter if taken and denied else "any" if taken else "none"
        return Requirement(
            self.name,
            needed,
            lambda seen: seen.issubset(names),
            bounds=names,
            show=lambda seen: "+".join(sorted(seen.difference(names))),
            told="none of these",
        )


phase = Axis("phase")
dtype = Axis("dtype")
weight_dtype = Axis("weight_dtype")
kv_dtype = Axis("kv_dtype")
kv_layout = Axis("kv_layout")
mask = Axis("mask")
sampling = Axis("sampling")
features = Names("features", get_args(Feature))

sm = Number("sm")
batch = Number("batch")
requests = Number("requests")
q_len = Number("q_len")
kv_heads = Number("kv_heads")
head_dim = Number("head_dim")
v_head_dim = Number("v_head_dim")
page_size = Number("page_size")
hidden = Number("hidden")
intermediate = Number("intermediate")
qkv_width = Number("qkv_width")
attention_width = Number("attention_width")
gate_up_width = Number("gate_up_width")
tokens = Number("tokens")
vocabulary = Number("vocabulary")
query_rows = Number("query_rows")
shared_mib = Number("shared_mib")
