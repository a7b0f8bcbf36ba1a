"""The listed engines, as the environment of a Python has them. They are listed there and imported nowhere."""

from msgspec import Struct

from kaudit.asking import answers
from kaudit.errors import told_in


class Installed(Struct, frozen=True):
    """`version` of the audited package is empty where it is not installed; `get` is how to get it."""

    name: str
    package: str
    version: str
    get: str


@told_in("docs/engines.md")
def installed(python: str) -> list[str]:
    """A line per engine. Raises UserError where that Python has no kaudit."""
    return [_line(engine) for engine in answers(python, "list its engines", Installed, "kaudit_probes.listing")]


def _line(engine: Installed) -> str:
    state = f"{engine.package} {engine.version}" if engine.version else f"not installed: {engine.get}"
    return f"{engine.name:<24}{state}"
