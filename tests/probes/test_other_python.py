"""`--python`: a sweep whose probe runs in another environment, and what that one must have."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kaudit_probes.engines import ENGINES
from test_scratch import kaudit

# Of kaudit's dependencies, the ones that docs/engines.md does not ask for there.
NOT_THERE = ("jinja2", "numpy", "pandas", "pyarrow", "pydantic", "rich", "typer")

SWEEP = ("sweep", "smoke", "--device", "cpu")


def test_the_probe_needs_msgspec_and_yaml_beside_torch() -> None:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({NOT_THERE}))"
    probe = "kaudit_probes.listing, kaudit_probes.observe, kaudit_probes.stamp, kaudit_probes.engines.sdpa"
    probe += ", kaudit_probes.engines.transformers_given"
    command = [sys.executable, "-P", "-c", f"{blocked}; import kaudit_probes.__main__, {probe}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def python(folder: Path, *flags: str, first: Path | None = None) -> Path:
    """A Python of an environment that has less."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{first or ""}:$PYTHONPATH" exec {sys.executable} {" ".join(flags)} "$@"\n')
    path.chmod(0o755)
    return path


def test_one_without_kaudit_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    swept = kaudit(*SWEEP, "--python", python(tmp_path, "-S"), "--out", tmp_path / "t.jsonl")
    assert swept.returncode == 2
    (line,) = swept.stderr.splitlines()
    assert "No module named" in line
    assert "see that kaudit and the engine import where --python points" in line
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.parametrize(
    ("engine", "text", "says"),
    [
        ("flashinfer", 'raise ImportError("No module named that")', "No module named that)"),
        ("transformers", r'raise RuntimeError("No CTK flavor\ninstalled")', "(RuntimeError: No CTK flavor installed)"),
        ("xformers", "raise OSError", "does not import (OSError)"),
        ("flashinfer", "import sys; sys.exit()", "does not import (SystemExit)"),
    ],
)
def test_an_engine_that_does_not_import_there_is_one_line_that_says_how_to_get_it(
    engine: str, text: str, says: str, tmp_path: Path
) -> None:
    line = fault_of(engine, text, tmp_path)
    assert f"--engine {engine}: " in line
    assert says in line
    assert ENGINES[engine].get in line


@pytest.mark.parametrize(
    ("raised", "fault"),
    [
        ("OSError('libcudart.so.12')", "torch does not import (OSError: libcudart.so.12); mend its installation"),
        ("SystemExit(3)", "torch does not import (SystemExit: 3); mend its installation"),
        (
            "ImportError('cannot import name \"nn\"', name='torch')",
            'torch does not import (ImportError: cannot import name "nn"); mend its installation',
        ),
        ("ModuleNotFoundError('No torch', name='torch')", "No torch; install kaudit[torch] there"),
    ],
)
def test_a_torch_that_does_not_import_is_told_alike_by_a_sweep_and_by_the_listing(
    raised: str, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(f"raise {raised}")
    swept = kaudit(*SWEEP, "--engine", "transformers", "--python", python(tmp_path, first=tmp_path))
    assert swept.returncode == 2
    told = f"{sys.executable}: {fault}, or name another --python"
    assert told in swept.stderr
    assert "\n" not in swept.stderr.strip()
    command = [tmp_path / "python", "-P", "-m", "kaudit_probes.listing", "transformers"]
    tried = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert msgspec.json.decode(tried.stdout) == {"name": "transformers", "trouble": told}


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("raise KeyboardInterrupt", r"SIGINT\): KeyboardInterrupt"),
        ("import os; os._exit(0)", r"exit 0\): it printed nothing"),
        ("import ctypes; ctypes.string_at(0)", r"SIGSEGV\): Segmentation fault: File \".*\", line \d+ in string_at"),
    ],
)
def test_a_probe_that_an_import_ends_is_one_line(text: str, how: str, tmp_path: Path) -> None:
    line = fault_of("flashinfer", text, tmp_path)
    assert re.search(rf"the probe died before it took cells \({how}; see that kaudit and the engine import", line), line


def fault_of(engine: str, text: str, folder: Path) -> str:
    """The one line that a sweep of an engine ends with, whose package has this text."""
    (folder / f"{engine}.py").write_text(text)
    swept = kaudit(*SWEEP, "--engine", engine, "--python", python(folder, first=folder))
    assert swept.returncode == 2
    (line,) = swept.stderr.splitlines()
    return line
