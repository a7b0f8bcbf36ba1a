"""Records the golden tables: `python tests/golden/record.py OUT`, on the GPU whose tables they are, or on a CPU.

`--part NAME`, as often as wanted, records that part alone; by default it is all of ON_GPU, or smoke. An engine that is
not installed ends the run with one line.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scratch_engine import Loss, scratch_copy

LOST = Loss(
    "split_kv_decode",
    "head_dim.one_of(64, 80, 96, 128, 192, 256)",
    "head_dim.one_of(64, 80, 96, 192, 256)",
    "head_dim=128",
)

JOBS = 8
"""Where a cell is seconds of compilation on a core."""

FLASHINFER = {
    "flashinfer": ("flashinfer", "*/bf16/*"),
    "flashinfer-fp16": ("flashinfer", "*/fp16/*"),
    "flashinfer-cuda-cores": ("flashinfer-cuda-cores", "decode/bf16/*"),
    "flashinfer-cuda-cores-fp16": ("flashinfer-cuda-cores", "decode/fp16/*/contiguous/*"),
    "flashinfer-fa2": ("flashinfer-fa2", "[pd]*/bf16/*/h32x8x128/*"),
    "flashinfer-fa3": ("flashinfer-fa3", "[pd]*/bf16/*/h32x8x128/*"),
}
"""Per part, which is a table's name, its engine and its cells of the matrix. What is asked for by name needs no module
that FlashInfer's own choice does not."""

JIT_LIMIT = ("--cell-timeout", "600")
"""For what is compiled inside a cell all the same."""


def run(module: str, *arguments: str, first_on_path: Path | None = None) -> None:
    path = [str(first_on_path or ""), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    if code := subprocess.run([sys.executable, "-m", module, *arguments], env=environment).returncode:
        sys.exit(code)


def sweep(out: Path, *arguments: str, first_on_path: Path | None = None) -> None:
    run("kaudit", "sweep", *arguments, "--out", str(out), first_on_path=first_on_path)


def release(out: Path) -> None:
    """The release matrix twice, results checked: the second table has the bytes of the first, or nothing is kept."""
    table, again = out / "release-h200.jsonl", out / "again.jsonl"
    for each in (table, again):
        sweep(each, "release", "--jobs", "4")
    if table.read_bytes() != again.read_bytes():
        sys.exit(f"{table} and {again} differ: two sweeps of one revision should not")
    again.unlink()


def decode(out: Path) -> None:
    """The release matrix's decode cells with the engine as it is, and with two scratch copies of it that lost head_dim
    128 in the decode kernel, one that says so and one that does not."""
    cells = ("release", "--only", "decode/*", "--no-numerics", "--jobs", "4")
    sweep(out / "decode-h200.jsonl", *cells)
    for name, announced in (("announced", True), ("silent", False)):
        with tempfile.TemporaryDirectory() as folder:
            scratch = scratch_copy(Path(folder), LOST, announced=announced)
            sweep(out / f"decode-h200-{name}.jsonl", *cells, first_on_path=scratch)


def engine(name: str, out: Path, *flags: str, matrix: str = "") -> None:
    sweep(out / f"{name}-h200.jsonl", matrix or name.replace("-", "_"), "--engine", name, *flags)


def flashinfer(part: str, out: Path) -> None:
    """The modules are built before, side by side, and not one after another inside the cells: about 250 s of 16 cores
    for each dtype, hence a table for each. What is built is not built again for the next part."""
    name, only = FLASHINFER[part]
    run("kaudit_probes.engines.flashinfer_jit", "flashinfer", "--engine", name, "--only", only)
    sweep(out / f"{part}-h200.jsonl", "flashinfer", "--engine", name, "--only", only, *JIT_LIMIT)


def smoke(out: Path) -> None:
    sweep(out / "smoke-cpu.jsonl", "smoke", "--device", "cpu")


def sdpa_cpu(python: str, out: Path) -> None:
    """One KV head for all query heads, on a CPU, by the torch of `python`: recorded with torch 2.13, and with 2.14."""
    asked = [python, "-c", "from importlib.metadata import version; print('.'.join(version('torch').split('.')[:2]))"]
    torch = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    table = out / f"sdpa-cpu-torch{torch}.jsonl"
    sweep(table, "sdpa", "--engine", "sdpa", "--only", "*/h8x1x64/*", "--device", "cpu", "--python", python)


ON_GPU: Mapping[str, Callable[[Path], None]] = {
    "release": release,
    "decode": decode,
    "edges": lambda out: sweep(out / "edges-h200.jsonl", "edges", "--jobs", "4"),
    "graphs": lambda out: sweep(out / "graphs-h200.jsonl", "graphs"),
    "sdpa": lambda out: engine("sdpa", out, "--jobs", "2"),
    "torch-varlen": partial(engine, "torch-varlen"),
    "transformers": partial(engine, "transformers"),
    "xformers": partial(engine, "xformers", matrix="torch_varlen"),
    "flash-attn-4": lambda out: engine("flash-attn-4", out, "--jobs", str(JOBS), matrix="torch_varlen"),
    "flex": lambda out: engine("flex", out, "--jobs", str(JOBS), "--cell-timeout", "100"),
    **{part: partial(flashinfer, part) for part in FLASHINFER},
}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(prog="record.py")
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", action="append", choices=(*ON_GPU, "smoke", "sdpa-cpu"))
    parser.add_argument("--python", default=sys.executable, help="of part sdpa-cpu")
    arguments = parser.parse_args()
    parts = {**ON_GPU, "smoke": smoke, "sdpa-cpu": partial(sdpa_cpu, arguments.python)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.part or (ON_GPU if torch.cuda.is_available() else ("smoke",)):
        parts[name](arguments.out)


if __name__ == "__main__":
    main()
