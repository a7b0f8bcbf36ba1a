"""Changes as people read them: by kind, worst first; in it by sentence, the most frequent first.

Expectations that are not met are read by sentence, too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
