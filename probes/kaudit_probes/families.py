"""Kernel names to families, by the ordered patterns of families.yaml."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from kaudit.observation import UNCLASSIFIED


@dataclass(frozen=True)
class Family:
    """What a kernel name stands for; `arch` is the generation in the name ("sm90"), empty where it states none."""

    name: str
    role: str
    arch: str = ""
    atom: bool = False


_ARCH = re.compile(r"(?<![A-Za-z])[sS]m_?(\d{2,3})(?!\d)")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Family], ...]:
    entries = yaml.safe_load(files("kaudit_probes").joinpath("families.yaml").read_text())
    return tuple(
        (re.compile(entry["pattern"]), Family(entry["family"], entry["role"], atom=entry.get("atom", False)))
        for entry in entries
    )


@cache
def classify(name: str) -> Family:
    """The family of a raw kernel or ATen op name: the first pattern found in it, else UNCLASSIFIED."""
    arch = _ARCH.search(name)
    stated = f"sm{arch[1]}" if arch else ""
    for pattern, family in _patterns():
        if pattern.search(name):
            return Family(family.name, family.role, stated, family.atom)
    return Family(UNCLASSIFIED, "unknown", stated)
