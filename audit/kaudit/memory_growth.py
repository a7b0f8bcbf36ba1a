"""How the memory of attention grows with the length of the KV cache: quadratic growth is a fallback that shows without
the name of any kernel. Pure."""

import math
from collections.abc import Iterator

from kaudit.by_length import by_length
from kaudit.findings import Finding
from kaudit.timing import Timings

ROUNDING = 1 << 20
"""Bytes that torch's CUDA allocator may hand out beyond what is asked for: a large block is not split where less would
be left over."""

STEEP = 1.5
"""Exponent from which growth is told. An output grows with the length, scores with its square."""


def memory_growths(timings: Timings) -> Iterator[Finding]:
    """Between the two largest lengths of otherwise equal cells: growth that is steep whatever the allocator rounded."""
    peaks = {key: timing.peak_bytes for key, timing in timings.items() if timing.peak_bytes is not None}
    for op, lengths in by_length(peaks):
        (shorter, _, low), (longer, cell, high) = lengths[-2:]
        if high <= ROUNDING:
            continue
        exponent = math.log((high - ROUNDING) / (low + ROUNDING)) / math.log(longer / shorter)
        if exponent >= STEEP:
            sentence = (
                f"{op}'s memory grows with kv_len^{exponent:.1f} or more between {shorter} and {longer} "
                f"({low / 2**20:.4g} → {high / 2**20:.4g} MiB), as where all scores are kept"
            )
            yield Finding("memory_growth", cell, op, sentence)
