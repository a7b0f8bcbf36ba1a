"""Every Triton kernel compiles for each generation of GPU, and fits its shared memory. Needs no GPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kaudit_kernels
from kaudit_kernels.catalogue import CATALOGUE

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
    shared = json.loads(done.stdout)
    assert {each: size for each, size in shared.items() if size > SHARED[arch]} == {}
    missing = [each for each in _functions(arch) if not any(re.search(each, name) for name in shared)]
    assert not missing, f"of no problem in {script.name}"


def _functions(arch: int) -> set[str]:
    """All that the catalogue names and Triton compiles."""
    return {
        function
        for kernels in CATALOGUE.values()
        for kernel in kernels
        if ".cuda." not in kernel.launch.__module__ and not kernel.never(arch)
        for function in (*kernel.functions, *kernel.also)
    }
