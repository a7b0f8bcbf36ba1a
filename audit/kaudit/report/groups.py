"""Changes as people read them: by kind, worst first; in it by sentence, the most frequent first."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from kaudit.change import KINDS, Change, Kind


class Told(Struct, frozen=True):
    """A sentence, how many changes it is said of, the first of them, and the first of their cells."""

    sentence: str
    count: int
    first: Change
    cells: tuple[str, ...]


def by_kind(changes: Iterable[Change]) -> dict[Kind, list[Change]]:
    found: defaultdict[Kind, list[Change]] = defaultdict(list)
    for change in changes:
        found[change.kind].append(change)
    return {kind: found[kind] for kind in KINDS if kind in found}


def by_sentence(changes: Sequence[Change], limit: int) -> Iterator[Told]:
    """As many sentences as hold the first `limit` cells."""
    sentences: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes:
        sentences[change.sentence].append(change)
    left = limit
    for sentence, said_of in sorted(sentences.items(), key=lambda item: -len(item[1])):
        if left <= 0:
            return
        yield Told(sentence, len(said_of), said_of[0], tuple(change.cell for change in said_of[:left]))
        left -= len(said_of)
