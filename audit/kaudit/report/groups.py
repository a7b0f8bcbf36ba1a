"""Changes as people read them: by kind, worst first; in it by sentence, the most frequent first.

Expectations that are not met are read by sentence, too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from kaudit.change import KINDS, Change, Kind
from kaudit.expect import Miss

T = TypeVar("T", Change, Miss)


class Told(Struct, Generic[T], frozen=True):
    """A sentence, how many changes it is said of, the first of them, and the first of their cells."""

    sentence: str
    count: int
    first: T
    cells: tuple[str, ...]


def by_kind(changes: Iterable[Change]) -> dict[Kind, list[Change]]:
    found: defaultdict[Kind, list[Change]] = defaultdict(list)
    for change in changes:
        found[change.kind].append(change)
    return {kind: found[kind] for kind in KINDS if kind in found}


def outline(group: Sequence[T], most: int, quoted: Callable[[str], str] = str) -> Iterator[tuple[int, str]]:
    """Lines with their depth: sentences at 0, at most `most` of their cells at 1, and how many cells are left at 0.

    `quoted`: what sentences and cells, which are engines' words, become.
    """
    for told in by_sentence(group, most):
        yield 0, quoted(told.sentence) + (f" ({told.count} cells)" if told.count > 1 else "")
        yield from ((1, quoted(cell)) for cell in told.cells if cell)
    if len(group) > most:
        yield 0, f"and {len(group) - most} more"


def by_sentence(changes: Sequence[T], limit: int) -> Iterator[Told[T]]:
    """As many sentences as hold the first `limit` cells."""
    sentences: defaultdict[str, list[T]] = defaultdict(list)
    for change in changes:
        sentences[change.sentence].append(change)
    left = limit
    for sentence, said_of in sorted(sentences.items(), key=lambda item: -len(item[1])):
        if left <= 0:
            return
        yield Told(sentence, len(said_of), said_of[0], tuple(change.cell for change in said_of[:left]))
        left -= len(said_of)
