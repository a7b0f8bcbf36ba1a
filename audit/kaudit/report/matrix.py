"""A plan as text, for `kaudit matrix`."""

from collections import Counter
from collections.abc import Iterator

from kaudit.matrix import Plan
from kaudit.wording import count


def matrix_text(plan: Plan) -> tuple[list[str], list[str]]:
    """Data lines, the ids of the cells to run; and word lines, the account of the others."""
    return [cell.id for cell in plan.cells], list(_words(plan))


def _words(plan: Plan) -> Iterator[str]:
    skips = Counter(reason for _, reason in plan.skipped)
    skips.update(dict(plan.unresolved))
    yield f"{plan.name}: {count(len(plan.cells), 'cell')} of {count(plan.product, 'combination')}, digest {plan.digest}"
    for because, taken in plan.forbidden:
        yield f"  forbidden {taken}: {because}"
    for reason, number in sorted(skips.items(), key=lambda item: (-item[1], item[0])):
        yield f"  skipped {number}: {reason}"
    for missing in plan.uncovered:
        yield f"  in no cell: {missing.axis} {missing.value}: {missing.why}"
