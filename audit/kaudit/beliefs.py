"""What is believed of a cell that raised an exception in company."""

import re
from collections import Counter

from kaudit.journal import Entry
from kaudit.observation import Crashed


def words_of_crash(entry: Entry) -> str:
    """What the cell crashed with, but for numbers: "RuntimeError: head_dim # is not built". Empty if it did not."""
    for row in entry.rows:
        match row.outcome:
            case Crashed(how):
                return re.sub(r"\d+", "#", how)
    return ""


class Beliefs:
    """Which exceptions of company are believed of a cell that did not run alone: an engine that cannot run at all would
    cost a process for each cell. Those of which ENOUGH like it came alone, and none did not; until then it runs alone.
    """

    ENOUGH = 3

    def __init__(self) -> None:
        self._confirmed = Counter[str]()
        self._refuted: set[str] = set()

    def believes(self, raised: Entry) -> bool:
        words = words_of_crash(raised)
        return words not in self._refuted and self._confirmed[words] >= self.ENOUGH

    def learn(self, raised: Entry, alone: Entry) -> None:
        """What a cell came to in company, and alone."""
        words = words_of_crash(raised)
        if words_of_crash(alone) == words:
            self._confirmed[words] += 1
        else:
            self._refuted.add(words)
