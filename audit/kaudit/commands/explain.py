"""`kaudit explain KIND`: what a word of a report means."""

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from kaudit.terminal import data

if TYPE_CHECKING:
    from kaudit.glossary import Entry


def _words(typed: str) -> list[str]:
    from kaudit.glossary import entries

    return sorted({name for name, _ in entries() if name.startswith(typed)})


def explain(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="As in a report: silent_fallback, unseen, …", autocompletion=_words)
    ],
) -> None:
    """Say what a word of a report means.

    Of a kind of change, an outcome, a finding, or fallback, announced, silent, asked and unclassified: its meaning,
    how it is decided, what to do, and the page on it.
    """
    from kaudit.glossary import look_up

    data(_told(*look_up(kind)))


def _told(name: str, found: "list[Entry]") -> Iterator[str]:
    for entry in found:
        yield from wrap(f"{name} ({entry.what}): {entry.meaning}", 80, subsequent_indent="  ")
        for label, text in (("decided", entry.decided), ("to do", entry.do), ("more", entry.page)):
            yield from wrap(f"{label}: {text}", 80, initial_indent="  ", subsequent_indent="    ")
