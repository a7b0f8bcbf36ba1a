"""Times what `kaudit diff` does on two tables of 100 000 rows: reading, diffing, explaining. Run as a script.

Two cases: a twentieth of the rows changed, where finding what those share is the work, and all of them changed, where
the sentences are.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kaudit.cell import Cell
from kaudit.change import Change
from kaudit.diff import changes, comparable
from kaudit.explain import explain
from kaudit.observation import Kernel, Ran, Rejection, Row, Unmet
from kaudit.report import text
from kaudit.table import SCHEMA, Device, Header, Stamp, Table, read, write

ROWS = 100_000
PATHS = ("flash_prefill", "split_kv_decode", "paged_decode", "eager")


def ids() -> Iterable[str]:
    axes = (
        ("decode", "chunked_prefill"),
        ("bf16", "fp16"),
        ("kv-fp8_e4m3", "kv-fp8_e5m2", "kv-int8"),
        ("h32x8x128", "h8x8x64", "h16x2x256", "h128x128x192x128", "h32x32x80"),
        ("contiguous", "paged16", "paged8", "paged64"),
        ("causal", "none", "window1024"),
        ("neox", "none"),
        ("plain", "sinks", "softcap"),
        tuple(f"b{b}q1k{k}" for b in (1, 8, 16, 64) for k in (16, 100, 1024, 4096, 8192, 32768)),
    )
    return map("/".join, itertools.islice(itertools.product(*axes), ROWS))


def row(cell: str, path: str, splits: int) -> Row:
    """As varied as real ones: grids follow batch, heads and KV length, reasons the layout and the heads."""
    axes = Cell.parse(cell).axes()
    name = f"void kaudit::{path}_kernel<{axes['dtype']}, {axes['head_dim']}, 64, true, false>(kaudit::Params, int, int)"
    grid = (int(axes["batch"]), int(axes["kv_heads"]), splits * (1 + int(axes["kv_len"]) // 1024))
    kernels = tuple(
        Kernel(f"{part}_{name}", "fa2", "attention", 1, "sm80", grid, (128, 1, 1), 168, 65536)
        for part in ("main", "combine")
    )
    seen = (("page_size", "a multiple of 16"), ("head_dim", "one of 64, 128"), ("kv_len", "at least 1024"))
    reasons = tuple(Unmet(axis, str(axes[axis]), needed) for axis, needed in seen)
    rejections = tuple(Rejection(other, "asked", reasons) for other in PATHS[: PATHS.index(path)])
    return Row(cell, "attention", Ran(path, kernels, path, rejections, numerics="ok"))


def table(revision: str, path_of: Callable[[str], str], splits: int) -> Table:
    device = Device("NVIDIA H200", "sm_90", 132, "580.1")
    header = Header(SCHEMA, "0", Stamp("bench", revision, device, {}, {}, "bench", "0"), {"attention": PATHS})
    return Table.of(header, (row(cell, path_of(cell), splits) for cell in ids()))


def timed(before: Path, after: Path) -> list[Change]:
    marks = [time.perf_counter()]
    old, new = read(before), read(after)
    marks.append(time.perf_counter())
    comparable(old, new)
    found = list(changes(old, new))
    marks.append(time.perf_counter())
    rules = explain(found, old, new)
    marks.append(time.perf_counter())
    lines = list(text.changes(found, rules, 5))
    marks.append(time.perf_counter())
    steps = [f"{name} {end - start:.2f} s" for name, start, end in zip(NAMES, marks, marks[1:], strict=False)]
    print(f"{marks[-1] - marks[0]:.2f} s: {', '.join(steps)}; {len(found)} changes")
    print(*lines[:4], sep="\n", file=sys.stderr)
    return found


NAMES = ("read", "diff", "explain", "text")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        base, some, every = (Path(folder) / name for name in ("base.jsonl", "some.jsonl", "every.jsonl"))
        first = table("1", lambda _: "paged_decode", 8)
        write(base, first)
        write(some, table("2", lambda cell: "eager" if "x256/" in cell and "e5m2" in cell else "paged_decode", 8))
        write(every, table("3", lambda cell: "eager" if "kv-int8" in cell else "paged_decode", 16))
        print(f"{len(first.rows)} rows of {base.stat().st_size // len(first.rows)} bytes")
        del first
        timed(base, some)
        timed(base, every)


if __name__ == "__main__":
    main()
