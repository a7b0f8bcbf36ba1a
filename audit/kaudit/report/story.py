"""All that a table knows of one cell."""

from collections.abc import Iterator, Mapping

from kaudit.observation import (
    UNCLASSIFIED,
    WHOLE_CELL,
    Chosen,
    Kernel,
    Predicted,
    Ran,
    Row,
    is_fallback,
    is_silent_fallback,
)
from kaudit.ranks import Paths, faster
from kaudit.reasons import because
from kaudit.report.columns import dims
from kaudit.show import cell_rows
from kaudit.table import Stamp, Table
from kaudit.transition import describe, problems, subject
from kaudit.varying import variations
from kaudit.wire import GraphUse, Numbers
from kaudit.wording import count

Key = tuple[str, str]
"""Cell and op, of a row."""


def story(
    table: Table, cell: str, figures: Mapping[Key, Numbers] | None = None, graphs: Mapping[Key, GraphUse] | None = None
) -> Iterator[str]:
    """Lines: where it was seen, then each op: paths fastest first, verdicts, kernels. By row, `figures` of results, and
    `graphs` that cells ran as.

    Raises UserError with the ids nearest to one that is not in the table.
    """
    rows = cell_rows(table, cell)
    yield cell
    yield from stamp_lines(table.header.stamp)
    yield from {_graph(use) for (of, _), use in (graphs or {}).items() if of == cell}  # that of all its ops
    # A table is sorted by name; the engine lists its ops in the order of a step.
    order = [WHOLE_CELL, *table.header.paths]
    for row in sorted(rows, key=lambda row: order.index(row.op)):
        yield ""
        yield "the whole cell" if row.op == WHOLE_CELL else row.op
        paths = table.header.paths.get(row.op, ())
        yield from (f"  {line}" for line in _op(row, paths, (figures or {}).get(row.key)))
        yield from (f"  {kind}: {sentence}" for kind, sentence in variations(row, paths))


def stamp_lines(stamp: Stamp) -> Iterator[str]:
    device = stamp.device
    multiprocessors = f", {device.sm_count} SMs" if device.sm_count else ""
    where = f"on {device.name} ({device.arch}{multiprocessors}), driver {device.driver}"
    if device.predicted:
        where = f"predicted for {device.arch}, not observed: nothing was run"
    yield f"{stamp.engine} {stamp.revision} {where}"
    for named in (stamp.versions, stamp.environment):
        if named:
            yield ", ".join(f"{name}={value}" for name, value in sorted(named.items()))


def _graph(use: GraphUse) -> str:
    room = f"room for {count(use.batch, 'request')}, {use.padding} of them padding"
    pool = "memory not known" if use.pool_bytes is None else f"{use.pool_bytes / 2**20:.4g} MiB set aside"
    return f"CUDA graph: {count(use.nodes, 'node')}, {room}, {pool}"


def _op(row: Row, paths: Paths, numbers: Numbers | None) -> Iterator[str]:
    match row.outcome:
        case Ran() as ran:
            yield from _candidates(ran, paths)
            yield from _verdicts(row, ran, paths)
            if numbers is not None:
                yield from _numbers(numbers)
            for kernel in ran.kernels:
                yield from _kernel(kernel)
        case Predicted() as predicted:
            yield from _candidates(predicted, paths)
            yield from (f"{kind}: {sentence}" for kind, sentence in problems(subject(row.op), predicted, paths))
            yield "predicted by the engine's selector: nothing ran, no kernel was seen"
        case outcome:
            yield describe(outcome)


def _candidates(chosen: Chosen, paths: Paths) -> Iterator[str]:
    """`→` ran or is predicted to, `×` turned down, `?` faster than what ran and nobody says why not, `·` slower than
    what ran."""
    before = faster(chosen.path, paths)
    for path in paths:
        reasons = [f"{no.source}: {because(no)}" for no in chosen.rejections if no.path == path]
        if path == chosen.path:
            yield f"→ {path}"
        elif path in before:
            yield f"{'×' if reasons else '?'} {path}" + ("" if reasons else ": no reason is known")
        else:
            yield f"· {path}: not reached"
        yield from (f"    {reason}" for reason in reasons)
    for rejection in chosen.rejections:
        if rejection.path not in paths:
            yield f"  {rejection.path}, not in the engine's list, {rejection.source}: {because(rejection)}"


def _verdicts(row: Row, ran: Ran, paths: Paths) -> Iterator[str]:
    found = list(problems(subject(row.op), ran, paths))
    yield from (f"{kind}: {sentence}" for kind, sentence in found)
    if is_fallback(ran, paths) and not is_silent_fallback(ran, paths):
        yield f"fallback, announced: not {' or '.join(faster(ran.path, paths))}"
    if not is_fallback(ran, paths) and not found:
        yield "no fallback"
    without = f", ignored feature: {ran.ignored}" if ran.ignored else ""
    yield f"claimed: {ran.claimed or 'nothing'}; numerics: {ran.numerics}{without}"
    why = f": {'; '.join(map(str, ran.ungraphed))}" if ran.ungraphed else ""
    yield f"graph: {ran.graph_got}, asked for {ran.graph_asked}{why}"


def _numbers(numbers: Numbers) -> Iterator[str]:
    if numbers.error is not None and numbers.tolerance is not None:
        where = f" at row {numbers.row}, head {numbers.head}"
        yield f"  error {numbers.error:.2g} of its size{where}; right up to {numbers.tolerance:.2g}"
    figures = {
        "absolute, at most": numbers.max_abs,
        "on average": numbers.mean_abs,
        "by norm": numbers.relative,
        "cosine": numbers.cosine,
        "log-sum-exp": numbers.lse_error,
        "of the whole step": numbers.step_error,
        "likeliest tokens shared": numbers.top_k,
        "greedy tokens shared": numbers.greedy,
        "margin": numbers.margin,
        "rows not written": numbers.unwritten or None,
        "elements not finite": numbers.nonfinite or None,
    }
    if known := [f"{name} {value:.6g}" for name, value in figures.items() if value is not None]:
        yield f"  {', '.join(known)}"
    if numbers.hint:
        yield f"  hint: {numbers.hint}"


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
