"""All that a table knows of one cell."""

from collections.abc import Iterator

from kaudit.observation import UNCLASSIFIED, WHOLE_CELL, Kernel, Ran, Row, is_fallback
from kaudit.ranks import Paths
from kaudit.reasons import because
from kaudit.report.columns import dims
from kaudit.show import cell_rows
from kaudit.table import Stamp, Table
from kaudit.transition import describe, problems, subject


def story(table: Table, cell: str) -> Iterator[str]:
    """Lines: where it was seen, then each op: paths fastest first, verdicts, kernels.

    Raises UserError with the ids nearest to one that is not in the table.
    """
    rows = cell_rows(table, cell)
    yield cell
    yield from stamp_lines(table.header.stamp)
    # A table is sorted by name; the engine lists its ops in the order of a step.
    order = [WHOLE_CELL, *table.header.paths]
    for row in sorted(rows, key=lambda row: order.index(row.op)):
        yield ""
        yield "the whole cell" if row.op == WHOLE_CELL else row.op
        yield from (f"  {line}" for line in _op(row, table.header.paths.get(row.op, ())))


def stamp_lines(stamp: Stamp) -> Iterator[str]:
    device = stamp.device
    multiprocessors = f", {device.sm_count} SMs" if device.sm_count else ""
    yield f"{stamp.engine} {stamp.revision} on {device.name} ({device.arch}{multiprocessors}), driver {device.driver}"
    for named in (stamp.versions, stamp.environment):
        if named:
            yield ", ".join(f"{name}={value}" for name, value in sorted(named.items()))


def _op(row: Row, paths: Paths) -> Iterator[str]:
    match row.outcome:
        case Ran() as ran:
            yield from _candidates(ran, paths)
            yield from _verdicts(row, ran, paths)
            for kernel in ran.kernels:
                yield from _kernel(kernel)
        case outcome:
            yield describe(outcome)


def _candidates(ran: Ran, paths: Paths) -> Iterator[str]:
    """`→` ran, `×` turned down, `?` faster than what ran and nobody says why not, `·` slower than what ran."""
    reached = paths.index(ran.path) if ran.path in paths else len(paths)
    for place, path in enumerate(paths):
        reasons = [f"{no.source}: {because(no)}" for no in ran.rejections if no.path == path]
        if path == ran.path:
            yield f"→ {path}"
        elif place < reached:
            yield f"{'×' if reasons else '?'} {path}" + ("" if reasons else ": no reason is known")
        else:
            yield f"· {path}: not reached"
        yield from (f"    {reason}" for reason in reasons)
    for rejection in ran.rejections:
        if rejection.path not in paths:
            yield f"  {rejection.path}, not in the engine's list, {rejection.source}: {because(rejection)}"


def _verdicts(row: Row, ran: Ran, paths: Paths) -> Iterator[str]:
    found = list(problems(subject(row.op), ran, paths))
    yield from (f"{kind}: {sentence}" for kind, sentence in found)
    if is_fallback(ran, paths) and ran.announced:
        yield f"fallback, announced: not {paths[0]}"
    if not is_fallback(ran, paths) and not found:
        yield "no fallback"
    yield f"claimed: {ran.claimed or 'nothing'}; numerics: {ran.numerics}"
    yield f"graph: {ran.graph_got}, asked for {ran.graph_asked}"


def _kernel(kernel: Kernel) -> Iterator[str]:
    yield f"{kernel.count}× {kernel.name}"
    family = "UNCLASSIFIED" if kernel.family == UNCLASSIFIED else f"{kernel.family}, {kernel.role}"
    facts = [family, kernel.arch, "in a CUDA graph" if kernel.graph else ""]
    if kernel.grid and kernel.block:
        facts += [f"grid {dims(kernel.grid)}", f"block {dims(kernel.block)}"]
    if kernel.registers is not None:
        facts.append(f"{kernel.registers} registers")
    if kernel.shared_memory is not None:
        facts.append(f"{kernel.shared_memory} bytes of shared memory")
    yield f"     {', '.join(filter(None, facts))}"
