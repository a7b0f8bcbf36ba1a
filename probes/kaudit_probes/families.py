"""Kernel names to families, by the ordered patterns of families.yaml."""

import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import yaml

from kaudit.observation import UNCLASSIFIED


@dataclass(frozen=True)
class Family:
    """What a kernel name stands for.

    `arch` is the generation in the name ("sm90"): empty where it states none, and where the names of the family state
    the oldest chip that a kernel is built for, whatever it runs on (`oldest_chip`). `atom`: an ATen op whose inner ops
    are its own business.
    """

    name: str
    role: str
    arch: str = ""
    atom: bool = False
    oldest_chip: bool = False


_ARCH = re.compile(r"(?<![A-Za-z])[sS]m_?(\d{2,3})(?!\d)")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Family], ...]:
    entries = yaml.safe_load(files("kaudit_probes").joinpath("families.yaml").read_text())
    return tuple((re.compile(entry.pop("pattern")), Family(entry.pop("family"), **entry)) for entry in entries)


@cache
def classify(name: str) -> Family:
    """The family of a raw kernel or ATen op name: the first pattern found in it, else UNCLASSIFIED."""
    family = next((family for pattern, family in _patterns() if pattern.search(name)), Family(UNCLASSIFIED, "unknown"))
    stated = _ARCH.search(name)
    return replace(family, arch=f"sm{stated[1]}") if stated and not family.oldest_chip else family
