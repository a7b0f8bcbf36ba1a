"""Findings of the figures beside a table: what grows with the length of the KV cache as it should not."""

from collections.abc import Iterator
from pathlib import Path

from kaudit.error_growth import error_growths
from kaudit.findings import Finding
from kaudit.measure import read_numbers, read_timings
from kaudit.memory_growth import memory_growths


def growths(table: Path) -> Iterator[Finding]:
    """Of the measure file beside a table, if there is one. Raises UserError where it is none of ours."""
    yield from error_growths(read_numbers(table))
    yield from memory_growths(read_timings(table))
