"""After a change of families.yaml: `python tests/golden/reclassify.py` derives the families in the golden tables anew.

What was measured, names, grids and counts, stays as it is: a family is only what a recorded name stands for.
"""

from pathlib import Path

from msgspec.structs import replace

from kaudit.observation import Kernel, Ran, Row
from kaudit.table import Table, read, write
from kaudit_probes.families import classify


def reclassified(row: Row) -> Row:
    if not isinstance(row.outcome, Ran):
        return row
    return replace(row, outcome=replace(row.outcome, kernels=tuple(map(_renamed, row.outcome.kernels))))


def _renamed(kernel: Kernel) -> Kernel:
    family = classify(kernel.name)
    return replace(kernel, family=family.name, role=family.role, arch=family.arch)


def main() -> None:
    for path in Path(__file__).parent.glob("*.jsonl"):
        table = read(path)
        write(path, Table.of(table.header, map(reclassified, table.rows.values())))


if __name__ == "__main__":
    main()
