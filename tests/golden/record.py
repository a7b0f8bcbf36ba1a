"""Records the golden tables: `python tests/golden/record.py OUT`, on the GPU whose tables they are, or on a CPU.

On a GPU: the release matrix twice, and its decode cells with the engine as it is and with two scratch copies of it that
lost head_dim 128 in the decode kernel, one that says so and one that does not. On a CPU: the smoke matrix.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scratch_engine import Loss, scratch_copy

LOST = Loss("split_kv_decode", "head_dim.one_of(64, 128)", "head_dim.one_of(64)", "head_dim=128")


def sweep(out: Path, *arguments: str, first_on_path: Path | None = None) -> None:
    path = [str(first_on_path or ""), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-m", "kaudit", "sweep", *arguments, "--out", str(out)]
    subprocess.run(command, env=environment, check=True)


def record_gpu(out: Path) -> None:
    sweep(out / "release-h200.jsonl", "release")
    sweep(out / "release-h200-again.jsonl", "release")
    decode = ("release", "--only", "decode/*")
    sweep(out / "decode-h200.jsonl", *decode)
    for name, announced in (("announced", True), ("silent", False)):
        with tempfile.TemporaryDirectory() as folder:
            scratch = scratch_copy(Path(folder), LOST, announced=announced)
            sweep(out / f"decode-h200-{name}.jsonl", *decode, first_on_path=scratch)


def main() -> None:
    import torch

    out = Path(sys.argv[1])
    if torch.cuda.is_available():
        record_gpu(out)
    else:
        sweep(out / "smoke-cpu.jsonl", "smoke", "--device", "cpu")


if __name__ == "__main__":
    main()
