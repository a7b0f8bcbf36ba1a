"""Times for people: a table of the figures, and of one cell all that they hang on."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kaudit.observation import WHOLE_CELL, Ran
from kaudit.report.columns import Listing
from kaudit.table import Stamp, Table
from kaudit.timing import Timings, digits
from kaudit.timing_columns import shape
from kaudit.timing_records import Record, Value, records

MOST_REASONS = 3
"""To list in a summary; the file has each."""

COLUMNS = {
    "cell": "cell",
    "op": "op",
    "path": "path",
    "fallback": "fallback",
    "clock": "clock",
    "runs": "runs",
    "median µs": "median_us",
    "p95": "p95_us",
    "IQR": "iqr_us",
    "launches": "launches",
    "idle µs": "idle_us",
    "share": "share_of_step",
    "costs ≤": "costs_at_most",
    "peak MiB": "peak_bytes",
}
"""Each column's heading, and its field of a record."""


def listing(found: Sequence[Record]) -> Listing:
    return Listing(
        tuple(COLUMNS), tuple(tuple(_text(name, record[name]) for name in COLUMNS.values()) for record in found)
    )


def _text(name: str, value: Value) -> str:
    match name, value:
        case "path" | "fallback" | "share_of_step" | "costs_at_most", None:
            return ""
        case _, None:
            return "?"
        case "peak_bytes", int() as size:
            return f"{size / 2**20:.4g}"
        case "share_of_step", float() as share:
            return f"{share:.1%}"
        case "costs_at_most", float() as cost:
            return f"{cost:.3g}×"
        case _, float() as number:
            return digits(number)
    return str(value)


def manifest(found: Sequence[Record], stamp: Stamp) -> Iterator[str]:
    """What the figures of one cell hang on: hardware, software, shape, measurement."""
    whole = next(record for record in found if record["op"] == WHOLE_CELL)
    device = stamp.device
    yield f"hardware: {device.name} ({device.arch}), driver {device.driver}"
    yield f"software: {stamp.engine} {stamp.revision}, " + ", ".join(
        f"{k} {v}" for k, v in sorted(stamp.versions.items())
    )
    yield "shape: " + ", ".join(f"{name} {value}" for name, value in shape(str(whole["cell"])).items())
    if gemms := [f"{record['op']} {record['gemm']}" for record in found if record["gemm"]]:
        yield f"GEMMs, M×N×K: {', '.join(gemms)}"
    after = f"{whole['runs']} runs after {_or(whole['warm_ups'])} warm-ups"
    yield f"measurement: {after}, {_caches(whole['flushed_bytes'])}"
    first = f"first call {_us(whole['first_us'])}, second {_us(whole['second_us'])}"
    compiled = whole["compiled"]
    yield f"{first}; " + (
        "compilation not measured" if compiled is None else f"Triton compiled {compiled} in {_us(whole['compile_us'])}"
    )
    if whole["span_us"] is not None:
        gaps = f"{_us(whole['idle_us'])} idle, the widest gap {_us(whole['widest_gap_us'])}"
        yield f"kernels, under the profiler: {_us(whole['span_us'])} from first to last, {gaps}"
    if whole["clock"] == "events":
        yield f"clocks as found, none set: {_clocks(whole)}"
    yield from (f"not known of {record['op']}: {record['unknown']}" for record in found if record["unknown"])


def _clocks(whole: Record) -> str:
    if whole["clocks_unread"]:
        return f"not readable: {whole['clocks_unread']}"
    held = whole["held_back"] or "nothing"
    return f"SM {whole['sm_mhz']} MHz, memory {whole['memory_mhz']} MHz; held back by: {held}"


def _caches(flushed: Value) -> str:
    match flushed:
        case None:
            return "caches not known"
        case 0:
            return "caches as the last run left them"
    return f"{flushed / 2**20:.4g} MiB written before each, past the L2" if isinstance(flushed, int) else ""


def _us(value: Value) -> str:
    return f"{digits(value)} µs" if isinstance(value, float) else "not measured"


def _or(value: Value) -> str:
    return "?" if value is None else str(value)


def times(table: Table, timings: Timings, asked: bool = False) -> Iterator[str]:
    """What was timed, what was not, and what a fallback can cost: a few lines for a summary; none without times, unless
    they were `asked` for."""
    found = list(records(table, timings))
    before = sum(isinstance(row.outcome, Ran) and key not in timings for key, row in table.rows.items())
    untimed = [str(record["unknown"]) for record in found if not record["runs"]]
    if found:
        yield f"times: {len(found) - len(untimed)} of {len(found)}, of ops and of whole cells"
    for why, number in Counter(untimed).most_common(MOST_REASONS):
        yield f"not timed: {why} ({number})"
    if before and (found or asked):  # kept by --resume, or of another shard
        yield f"not timed: swept without --timing ({before})"
    costs = [(cost, record) for record in found if record["fallback"] and (cost := record["costs_at_most"])]
    if costs:
        cost, record = max(costs, key=lambda one: float(one[0]))
        yield (
            f"a fallback costs a step at most {cost:.3g}×: {record['op']} on {record['path'] or 'no listed path'}, "
            f"{record['share_of_step']:.0%} of its device time, in {record['cell']}"
        )
