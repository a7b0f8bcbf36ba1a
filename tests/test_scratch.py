"""The whole way, live on this machine's CPU: an engine that lost a fast path is swept, diffed and gated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kaudit.table import read
from scratch_engine import Loss, scratch_copy

GOLDEN = Path(__file__).parent / "golden"

LOST = Loss(
    "fused_sdpa",
    'kv_layout.one_of("contiguous", "ragged")',
    'kv_layout.one_of("contiguous")',
    "kv_layout=ragged",
)


def kaudit(*arguments: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    command = [sys.executable, "-m", "kaudit", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The smoke matrix through the engine as it is, and through its two scratch copies."""
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for name in ("whole", "announced", "silent"):
        out = folder / f"{name}.jsonl"
        scratch = None
        if name != "whole":
            scratch = scratch_copy(folder / name, LOST, announced=name == "announced")
        swept = kaudit("sweep", "smoke", "--device", "cpu", "--out", out, path=scratch)
        assert swept.returncode == 0, swept.stderr
        assert swept.stdout.strip() == str(out)
        found[name] = out
    return found


def test_a_second_sweep_writes_the_same_bytes(tables: dict[str, Path], tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    assert kaudit("sweep", "smoke", "--device", "cpu", "--out", again).returncode == 0
    assert again.read_bytes() == tables["whole"].read_bytes()


def test_the_smoke_matrix_shows_what_its_golden_table_says(tables: dict[str, Path]) -> None:
    """`python tests/golden/record.py tests/golden` writes it anew, for whoever meant to change it."""
    live, golden = read(tables["whole"]), read(GOLDEN / "smoke-cpu.jsonl")
    if live.header.stamp.versions != golden.header.stamp.versions:
        pytest.skip(f"the golden table is of {golden.header.stamp.versions}")
    assert list(live.rows.values()) == list(golden.rows.values())


def test_the_diff_names_the_moved_cells_and_what_they_share(tables: dict[str, Path]) -> None:
    told = kaudit("diff", tables["whole"], tables["silent"])
    assert told.returncode == 0
    assert "attention left fused_sdpa for eager" in told.stdout
    assert "kv_layout=ragged" in told.stdout


def test_the_gate_fails_on_the_silent_loss(tables: dict[str, Path]) -> None:
    gated = kaudit("gate", tables["whole"], tables["silent"])
    assert gated.returncode == 1
    assert "silent_fallback" in gated.stdout
    assert "gate failed" in gated.stderr


def test_an_announced_loss_passes_by_default_and_fails_where_the_policy_says_so(
    tables: dict[str, Path], tmp_path: Path
) -> None:
    assert kaudit("gate", tables["whole"], tables["announced"]).returncode == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text("fail_on: [silent_fallback, announced_fallback]\n")
    gated = kaudit("gate", tables["whole"], tables["announced"], "--policy", policy)
    assert gated.returncode == 1
    assert "kv_layout=ragged, needs contiguous" in gated.stdout


def test_a_table_against_itself_passes(tables: dict[str, Path]) -> None:
    gated = kaudit("gate", tables["whole"], tables["whole"])
    assert (gated.returncode, gated.stdout) == (0, "")
