"""The listed engines, as the environment of a Python has them: processes of that Python list and try them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from threading import Event

import msgspec
from msgspec import Struct

from kaudit.asking import answers, ask
from kaudit.errors import told_in
from kaudit.shortage import threads_needed

LIMIT = 60.0
"""Seconds for the engines of one package, and for one that is tried alone: torch from a cold network disk takes most of
them. Warm, the seven engines of torch and transformers take 5.6 s of processor time in two processes."""

_MODULE = "kaudit_probes.listing"


class Installed(Struct, frozen=True):
    """`version` of the audited package is empty where it is not installed; `get` is how to get it."""

    name: str
    package: str
    version: str
    get: str


class Tried(Struct, frozen=True):
    """An engine whose package is installed. `trouble`: why no sweep of it can begin; empty where all that it needs
    imports."""

    name: str
    trouble: str


@told_in("docs/engines.md")
def installed(python: str) -> list[str]:
    """A line per engine. Raises UserError where that Python has no kaudit."""
    listed = answers(python, "list its engines", Installed, _MODULE)
    there = [engine for engine in listed if engine.version]
    # Engines of one package share a process, and with it the import of torch, which takes 1.5 to 2 s of a core.
    tried = _side_by_side(python, [list(group) for _, group in groupby(there, lambda engine: engine.package)])
    # Where one fails, those behind it were not tried: each of them alone, now.
    tried |= _side_by_side(python, [[engine] for engine in there if engine.name not in tried])
    return [_line(engine, tried) for engine in listed]


def _side_by_side(python: str, groups: Sequence[Sequence[Installed]]) -> dict[str, str]:
    """The trouble of each engine that was tried. One that is alone was tried, whatever became of its process."""
    interrupted = Event()

    def told(group: Sequence[Installed]) -> dict[str, str]:
        first, *others = group
        names = [engine.name for engine in group]
        printed = ask(python, "try its engines", _MODULE, *names, limit=LIMIT, given_up=interrupted)
        found: dict[str, str] = {}
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            for line in printed.text.splitlines():
                tried = msgspec.json.decode(line, type=Tried)
                if tried.name in names:
                    found[tried.name] = tried.trouble
        if not found and not others:
            found[first.name] = f"does not import ({printed.fault}); {first.get}, where --python points"
        return found

    with ThreadPoolExecutor(max(1, len(groups))) as pool:
        try:
            with threads_needed():
                founds = pool.map(told, groups)
            return {name: trouble for found in founds for name, trouble in found.items()}
        except BaseException:
            interrupted.set()
            raise


def _line(engine: Installed, tried: dict[str, str]) -> str:
    if not engine.version:
        return f"{engine.name:<24}not installed: {engine.get}"
    return f"{engine.name:<24}{engine.package} {engine.version}: {tried[engine.name] or 'importable'}"
