"""An engine's paths for people: what each needs, or what a cell or a device does not meet of it."""

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from kaudit.catalogue import Catalogue, Listed

_PLAIN = re.compile(r"\^?([\w:# ]+)[<$]?")
"""A regular expression that is a function's name, and where that begins or ends."""

_UNBROKEN = "\xa0"


def lines(found: Catalogue, op: str | None, width: int) -> Iterator[str]:
    """`op`: only that one. `width` in characters."""
    yield f"{found.engine}@{found.revision}" + (f" on {found.device}" if found.device else "")
    if found.refused:
        yield f"{found.cell}: refused: {found.refused}"
        return
    if found.cell:
        yield found.cell
    shown = [path for path in found.paths if op in (None, path.op)]
    longest = max((len(path.path) for path in shown), default=0)
    for each in dict.fromkeys(path.op for path in shown):
        yield from ("", each)
        if found.cell and each not in found.ops:
            yield "  the cell has no such op"
            continue
        for place, path in enumerate(found.of(each), 1):
            name = f"{place:3}  {path.path:<{longest}}  "
            yield from _answer(name, found, path, width) if found.cell else _needs(name, path, width)
    if not found.stated:
        yield from ("", f"{found.engine} does not state what its paths need")


def _answer(name: str, found: Catalogue, path: Listed, width: int) -> Iterator[str]:
    if path is found.chosen(path.op):
        said = ["serves the cell"]
    else:
        said = [*map(str, path.unmet)] or ["would serve it, were the faster ones not there"]
    for each in said:
        yield from _hanging(name, (each,), width)
        name = " " * len(name)


def _needs(name: str, path: Listed, width: int) -> Iterator[str]:
    if path.unmet:
        yield from _hanging(f"{name}never: ", [*map(str, path.unmet)], width)
        return
    shown = [*map(_function, path.shows), *(f"at times {_function(each)}" for each in path.also)]
    yield from _hanging(f"{name}shows " if shown else name, shown, width, ", ")
    for label, needs in (("requires", path.requires), ("worth if", path.worth)):
        if needs:
            yield from _hanging(f"     {label}  ", needs, width)


def _hanging(start: str, parts: Sequence[str], width: int, between: str = "; ") -> list[str]:
    """The parts, one after the other, behind a start. None that fits a line is broken, nor a word that does not."""
    room, indent = width - len(start), " " * len(start)
    text = between.join(each.replace(" ", _UNBROKEN) if len(each) < room else each for each in parts)
    found = wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_UNBROKEN, " ") for line in found] or [start.rstrip()]


def _function(pattern: str) -> str:
    """`rms_norm_kernel` of `^rms_norm_kernel`; what is more than a name stays as it is."""
    name = _PLAIN.fullmatch(pattern)
    return name[1] if name else pattern
