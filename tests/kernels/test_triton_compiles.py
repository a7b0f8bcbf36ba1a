"""Every Triton kernel compiles for each generation of GPU, and fits its shared memory. Needs no GPU."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

import kaudit_kernels
from kaudit_kernels.catalogue import CATALOGUE

pytest.importorskip("triton")

# Bytes of shared memory that one block may have (CUDA programming guide, table of compute capabilities).
SHARED = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024}

SCRIPT = Path(__file__).with_name("compile_triton.py")


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[int, subprocess.Popen[str]]]:
    """All at once: half a minute of a core each, and the last that a run of all tests waits for."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(kaudit_kernels.__file__).parents[1]),
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
    }
    with ExitStack() as stack:
        yield {
            arch: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, SCRIPT, str(arch)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for arch in SHARED
        }


@pytest.mark.parametrize("arch", SHARED)
def test_kernels_compile_and_fit(arch: int, compiling: Mapping[int, subprocess.Popen[str]]) -> None:
    out, err = compiling[arch].communicate()
    assert compiling[arch].returncode == 0, err
    shared = json.loads(out)
    assert {each: size for each, size in shared.items() if size > SHARED[arch]} == {}
    missing = [each for each in _functions(arch) if not any(re.search(each, name) for name in shared)]
    assert not missing, f"of no problem in {SCRIPT.name}"


def _functions(arch: int) -> set[str]:
    """All that the catalogue names and Triton compiles."""
    return {
        function
        for kernels in CATALOGUE.values()
        for kernel in kernels
        if ".cuda." not in kernel.launch.__module__ and not kernel.never(arch)
        for function in (*kernel.functions, *kernel.also)
    }
