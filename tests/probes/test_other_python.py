"""`--python`: a sweep whose probe runs in another environment, and what that one must have."""

import subprocess
import sys
from pathlib import Path

import pytest

from kaudit_probes.engines import ENGINES
from test_scratch import kaudit

# Of kaudit's dependencies, the ones that docs/engines.md does not ask for there.
NOT_THERE = ("jinja2", "numpy", "pandas", "pyarrow", "pydantic", "rich", "typer")

SWEEP = ("sweep", "smoke", "--device", "cpu")


def test_the_probe_needs_msgspec_and_yaml_beside_torch() -> None:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({NOT_THERE}))"
    probe = "kaudit_probes.listing, kaudit_probes.observe, kaudit_probes.stamp, kaudit_probes.engines.sdpa"
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


@pytest.mark.parametrize("engine", ["flashinfer", "transformers", "xformers"])
@pytest.mark.parametrize(
    ("raises", "says"),
    [
        ('ImportError("No module named that")', "not installed (No module named that)"),
        (r'RuntimeError("No CTK flavor\ninstalled")', "does not import (RuntimeError: No CTK flavor)"),
        ("OSError()", "does not import (OSError: )"),
    ],
)
def test_an_engine_that_does_not_import_there_is_one_line_that_says_how_to_get_it(
    engine: str, raises: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / f"{engine}.py").write_text(f"raise {raises}\n")
    swept = kaudit(*SWEEP, "--engine", engine, "--python", python(tmp_path, first=tmp_path))
    assert swept.returncode == 2
    (line,) = swept.stderr.splitlines()
    assert f"--engine {engine}: {says}" in line
    assert ENGINES[engine].get in line
