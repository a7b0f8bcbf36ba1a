"""What a single table already tells, without a baseline: pure."""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from kaudit.observation import Ran, Row
from kaudit.table import Table, cells_of
from kaudit.varying import variations

FindingKind = Literal[
    "older_kernel",
    "disagreement",
    "ignored_feature",
    "order_dependent",
    "flapping",
    "uncompared",
    "memory_growth",
    "error_growth",
]


class Finding(Struct, frozen=True):
    kind: FindingKind
    cell: str
    op: str
    sentence: str


def findings(table: Table) -> Iterator[Finding]:
    """Kernels of an older chip generation than the GPU's, equal calls that took different paths, features without
    effect, runs that differ."""
    chip = generation(table.header.stamp.device.arch)
    for cell, rows in cells_of(table).items():
        for row in rows:
            if isinstance(row.outcome, Ran):
                yield from _older(row, row.outcome, chip)
                if without := row.outcome.ignored:
                    yield Finding("ignored_feature", cell, row.op, f"{row.op}: ignored feature: {without}")
            for kind, sentence in variations(row, table.header.paths.get(row.op, ())):
                yield Finding(kind, cell, row.op, sentence)
        yield from _disagreements(cell, rows)


def _older(row: Row, ran: Ran, chip: int) -> Iterator[Finding]:
    """The probe leaves `arch` empty where a name's suffix is only the oldest chip that the kernel is built for."""
    for arch in sorted({kernel.arch for kernel in ran.kernels if 0 < generation(kernel.arch) < chip}):
        family = next(kernel.family for kernel in ran.kernels if kernel.arch == arch)
        yield Finding("older_kernel", row.cell, row.op, f"{row.op}: a {family} kernel of {arch} on a newer chip")


def _disagreements(cell: str, rows: tuple[Row, ...]) -> Iterator[Finding]:
    """Ops that share a name before "=" are one call said in different ways: `attention=expanded_heads`."""
    paths = {row.op: row.outcome.path for row in rows if isinstance(row.outcome, Ran)}
    for op, path in paths.items():
        stem, equals, _ = op.partition("=")
        if equals and stem in paths and paths[stem] != path:
            sentence = f"{op} took {path or 'no listed path'}, the equal {stem} {paths[stem] or 'no listed path'}"
            yield Finding("disagreement", cell, op, sentence)


def generation(arch: str) -> int:
    """8 of "sm80" and "sm_89", 12 of "sm_120"; 0 where no GPU architecture is named."""
    found = re.fullmatch(r"sm_?(\d+)\d", arch)
    return int(found[1]) if found else 0
