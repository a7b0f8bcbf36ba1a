"""How the error of attention grows with the length of the KV cache: pure."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

from kaudit.by_length import by_length
from kaudit.findings import Finding
from kaudit.wire import Numbers

SLACK = 2.0
"""Roundings that know nothing of each other add up with the square root of their number; the worst of many elements
varies from length to length by less than this, in every right engine measured."""

FLOOR = 1 / 8
"""Of the tolerance: what one rounding of the result costs at any length. Less is not told from none."""


def error_growths(numbers: Mapping[tuple[str, str], Numbers]) -> Iterator[Finding]:
    """Between one length and the next of otherwise equal cells: an error that grows faster than its roundings do, as
    where partial sums are kept in 16 bits. It may still be within the tolerance, and it will not be for long."""
    known = {
        key: (one.error, one.tolerance)
        for key, one in numbers.items()
        if one.error is not None and one.tolerance is not None
    }
    for op, lengths in by_length(known):
        for (shorter, _, (low, allowed)), (longer, cell, (high, _)) in pairwise(lengths):
            expected = SLACK * math.sqrt(longer / shorter) * max(low, FLOOR * allowed)
            if high > expected:
                sentence = (
                    f"{op}'s error grows from {low:.2g} to {high:.2g} between kv_len {shorter} and {longer}: "
                    f"up to {expected:.2g} is what roundings add up to"
                )
                yield Finding("error_growth", cell, op, sentence)
