"""The engine decides on a box that has neither Triton nor cuda-core."""

import subprocess
import sys
from pathlib import Path

import kaudit_kernels

PACKAGE = Path(kaudit_kernels.__file__).parent


def test_the_catalogue_is_read_without_triton_and_cuda_core() -> None:
    script = """
import sys
sys.modules["triton"] = sys.modules["cuda"] = None
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kernel_problems import BASE
print(*(decide(op, BASE, CATALOGUE).chosen.name for op in CATALOGUE))
"""
    path = [str(PACKAGE.parent), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{script}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[3] == "split_kv_decode"
