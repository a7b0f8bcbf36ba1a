"""Sweeps with the fake probe, as a process that a test can kill: `drive_sweep.py OUT CELLS [--resume]`."""

import sys
from pathlib import Path

from kaudit.cell import Cell
from kaudit.progress import progress
from kaudit.sweep import SweepRequest, sweep

FAKE_PROBE = (sys.executable, str(Path(__file__).parent / "fake_probe.py"))


def cell(batch: int, kv_len: int = 64) -> Cell:
    return Cell.parse(f"decode/bf16/kv-bf16/h8x2x64/paged16/causal/neox/plain/b{batch}q1k{kv_len}")


def main() -> None:
    out, count, *flags = sys.argv[1:]
    request = SweepRequest(FAKE_PROBE, "kill.yaml", "d1", Path(out), resume="--resume" in flags)
    with progress() as shown:
        sweep([cell(1, 64 + number) for number in range(int(count))], [], request, shown)


if __name__ == "__main__":
    main()
