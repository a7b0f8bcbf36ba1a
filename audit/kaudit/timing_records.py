"""One flat record per figure, with all that it hangs on: for people who take figures elsewhere."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

from kaudit.amdahl import bound, shares
from kaudit.ids import cells_read
from kaudit.observation import Ran, is_fallback, is_silent_fallback
from kaudit.table import Table
from kaudit.timing import Timings
from kaudit.timing_columns import shape

Value = str | int | float | None
Record = Mapping[str, Value]


def records(table: Table, timings: Timings) -> Iterator[Record]:
    """In the order of the file. None is "not measured", and `unknown` says why."""
    stamp, share_of = table.header.stamp, dict(shares(timings))
    software = {f"software.{name}": value for name, value in sorted(stamp.versions.items())}
    for (cell, op), timing in timings.items():
        row = table.rows.get((cell, op))
        share = share_of.get((cell, op))
        ran = row.outcome if row is not None and isinstance(row.outcome, Ran) else None
        paths = table.header.paths.get(op, ())
        with cells_read():
            facts = shape(cell)
        yield {
            "cell": cell,
            "op": op,
            "path": ran.path if ran else None,
            "fallback": _fallback(ran, paths) if ran else None,
            "backend": " ".join(dict.fromkeys(kernel.family for kernel in ran.kernels)) if ran else None,
            "clock": timing.clock,
            "runs": len(timing.samples_us),
            "median_us": timing.median_us,
            "p95_us": timing.p95_us,
            "iqr_us": timing.iqr_us,
            "least_us": min(timing.samples_us, default=None),
            "most_us": max(timing.samples_us, default=None),
            "unknown": timing.unknown or None,
            "span_us": timing.span_us,
            "idle_us": timing.idle_us,
            "widest_gap_us": timing.widest_gap_us,
            "launches": timing.launches,
            "share_of_step": share,
            "costs_at_most": None if share is None else bound(share),
            "peak_bytes": timing.peak_bytes,
            "warm_ups": timing.warm_ups,
            "first_us": timing.first_us,
            "second_us": timing.second_us,
            "compile_us": timing.compile_us,
            "compiled": timing.compiled,
            "flushed_bytes": timing.flushed_bytes,
            "sm_mhz": _joined(timing.sm_mhz),
            "memory_mhz": _joined(timing.memory_mhz),
            "held_back": _joined(timing.held_back),
            "clocks_unread": timing.clocks_unread or None,
            "gemm": timing.gemm or None,
            **facts,
            "gpu": stamp.device.name,
            "arch": stamp.device.arch,
            "driver": stamp.device.driver,
            "engine": stamp.engine,
            "engine_revision": stamp.revision,
            "kaudit": table.header.kaudit,
            **software,
        }


def _fallback(ran: Ran, paths: tuple[str, ...]) -> str:
    if not is_fallback(ran, paths):
        return ""
    return "silent" if is_silent_fallback(ran, paths) else "announced"


def _joined(values: Sequence[object]) -> str | None:
    return " ".join(map(str, values)) or None


def csv_lines(found: Sequence[Record]) -> list[str]:
    text = StringIO()
    writer = csv.DictWriter(text, found[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue().splitlines()
