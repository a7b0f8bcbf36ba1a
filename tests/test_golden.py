"""Real tables, from an H200: what CI, which has no GPU, must know about GPUs. `tests/golden/record.py` makes them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from golden.reclassify import reclassified
from kaudit.cell import Cell
from kaudit.observation import UNCLASSIFIED, Ran
from kaudit.table import Table, read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_probes.engines.reference import problem_of
from test_scratch import kaudit

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def release() -> Table:
    return read(GOLDEN / "release-h200.jsonl")


def test_the_release_matrix_was_seen_whole(release: Table) -> None:
    assert len({row.cell for row in release.rows.values()}) >= 300
    assert all(isinstance(row.outcome, Ran) for row in release.rows.values())
    ran = [row.outcome for row in release.rows.values() if isinstance(row.outcome, Ran)]
    kernels = [kernel for outcome in ran for kernel in outcome.kernels]
    assert all(kernel.grid and kernel.block for kernel in kernels if kernel.role not in ("copy", "fill"))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_kernel_has_the_family_that_its_name_has_today(path: Path) -> None:
    """`python tests/golden/reclassify.py` derives them anew."""
    for row in read(path).rows.values():
        assert reclassified(row) == row
        if isinstance(row.outcome, Ran):
            assert not [kernel.name for kernel in row.outcome.kernels if kernel.family == UNCLASSIFIED]


def test_today_s_predicates_choose_what_ran_on_the_h200(release: Table) -> None:
    """Whoever changes a predicate records the tables again, on the GPU."""
    device = release.header.stamp.device
    sm = int(device.arch.removeprefix("sm_"))
    moved = {
        (row.cell, row.op): (row.outcome.path, chosen)
        for row in release.rows.values()
        if isinstance(row.outcome, Ran)
        and (chosen := decide(row.op, problem_of(Cell.parse(row.cell), sm, device.sm_count), CATALOGUE).chosen.name)
        != row.outcome.path
    }
    assert not moved


def test_the_engine_s_word_and_the_kernels_agree(release: Table) -> None:
    assert not [row.key for row in release.rows.values() if isinstance(row.outcome, Ran) and row.outcome.contradiction]


def test_the_diff_names_what_the_moved_cells_share() -> None:
    told = kaudit("diff", GOLDEN / "decode-h200.jsonl", GOLDEN / "decode-h200-silent.jsonl")
    assert "silent_fallback: 76" in told.stdout
    left = "attention left split_kv_decode for flash_prefill without a word"
    assert f"{left} (asked: head_dim=128, needs one of 64, 80, 96, 192, 256)" in told.stdout
    assert "head_dim=128 and page_size>=16: 76 of 76 moved, 4 of 113 others" in told.stdout


def test_the_gate_fails_on_the_silent_loss_of_head_dim_128() -> None:
    gated = kaudit("gate", GOLDEN / "decode-h200.jsonl", GOLDEN / "decode-h200-silent.jsonl")
    assert gated.returncode == 1
    assert "gate failed: 76 silent_fallback;" in gated.stderr


@pytest.mark.parametrize(("policy", "code"), [("", 0), ("fail_on: [announced_fallback]\n", 1)])
def test_the_announced_loss_fails_where_the_policy_says_so(policy: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(policy or "fail_on: [silent_fallback]\n")
    gated = kaudit("gate", GOLDEN / "decode-h200.jsonl", GOLDEN / "decode-h200-announced.jsonl", "--policy", path)
    assert gated.returncode == code
    assert ("head_dim=128, needs one of 64, 80" in gated.stdout) == (code == 1)


README = (GOLDEN.parents[1] / "README.md").read_text()
SHOWN = re.findall(r"```\n\$ kaudit ([^\n]+)\n(.*?)\n```", README, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_what_the_readme_shows_is_what_is_printed(command: str, output: str) -> None:
    kaudit = [sys.executable, "-m", "kaudit", *command.split()]
    ran = subprocess.run(kaudit, cwd=GOLDEN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert ran.stdout.rstrip() == output


def test_the_readme_shows_a_gate_and_two_versions() -> None:
    assert [command.split()[0] for command, _ in SHOWN] == ["gate", "diff"]
