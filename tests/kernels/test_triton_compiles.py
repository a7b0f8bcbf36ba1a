"""Every Triton kernel compiles for each generation of GPU, and fits its shared memory. Needs no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kaudit_kernels

pytest.importorskip("triton")

# Bytes of shared memory that one block may have (CUDA programming guide, table of compute capabilities).
SHARED = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024}


@pytest.mark.parametrize("arch", SHARED)
def test_kernels_compile_and_fit(arch: int, tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(Path(kaudit_kernels.__file__).parents[1]),
        "TRITON_CACHE_DIR": str(tmp_path),
    }
    script = Path(__file__).with_name("compile_triton.py")
    done = subprocess.run([sys.executable, script, str(arch)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout).values()) <= SHARED[arch]
