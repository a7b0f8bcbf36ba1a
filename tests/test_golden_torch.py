"""What real tables of torch's own attention on an H200 (torch 2.11, cuDNN 9.19) say, read back through the product, and
two of a CPU, by two versions of torch."""

from pathlib import Path

import pytest

from kaudit.diff import changes
from kaudit.findings import findings
from kaudit.observation import Ran, Said, is_silent_fallback
from kaudit.table import Table, read

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def sdpa() -> Table:
    return read(GOLDEN / "sdpa-h200.jsonl")


def ran(table: Table, cell: str, op: str = "attention") -> Ran:
    outcome = table.rows[cell, op].outcome
    assert isinstance(outcome, Ran)
    return outcome


def test_the_table_is_whole(sdpa: Table) -> None:
    assert len({row.cell for row in sdpa.rows.values()}) >= 500
    assert all(isinstance(row.outcome, Ran) and not row.outcome.contradiction for row in sdpa.rows.values())


def test_fp32_with_shared_kv_heads_goes_to_math_without_a_word(sdpa: Table) -> None:
    found = ran(sdpa, "prefill/fp32/kv-fp32/h32x8x128/contiguous/causal/none/plain/b4q128k128")
    assert found.path == "sdpa:math"
    assert is_silent_fallback(found, sdpa.header.paths["attention"])
    why = {rejection.path: rejection.reasons[0] for rejection in found.rejections if rejection.source == "asked"}
    assert isinstance(said := why["sdpa:efficient"], Said)
    assert "same num_heads" in said.text


def test_the_same_heads_expanded_do_not(sdpa: Table) -> None:
    cell = "prefill/fp32/kv-fp32/h32x8x128/contiguous/causal/none/plain/b4q128k128"
    assert ran(sdpa, cell, "attention=expanded_heads").path == "sdpa:efficient"
    disagreeing = {(finding.cell, finding.op) for finding in findings(sdpa) if finding.kind == "disagreement"}
    assert (cell, "attention=expanded_heads") in disagreeing


def test_bf16_decode_runs_a_cudnn_kernel_of_the_last_generation(sdpa: Table) -> None:
    cell = "decode/bf16/kv-bf16/h32x8x128/contiguous/causal/none/plain/b8q1k4096"
    found = ran(sdpa, cell)
    assert found.path == "sdpa:cudnn"
    assert [(kernel.family, kernel.arch) for kernel in found.kernels] == [("cudnn_sdpa", "sm80"), ("cudnn_combine", "")]
    assert any(finding.cell == cell and finding.kind == "older_kernel" for finding in findings(sdpa))


def test_one_query_and_one_key_leave_cudnn(sdpa: Table) -> None:
    found = ran(sdpa, "prefill/bf16/kv-bf16/h8x8x128/contiguous/causal/none/plain/b4q1k1")
    assert found.path == "sdpa:flash"


@pytest.mark.parametrize("dim", [264, 320, 512])
@pytest.mark.parametrize("mask", ["causal", "none"])
def test_shared_heads_wider_than_256_go_to_math_and_expanded_ones_do_not(sdpa: Table, dim: int, mask: str) -> None:
    cell = f"prefill/bf16/kv-bf16/h8x2x{dim}/contiguous/{mask}/none/plain/b1q8192k8192"
    assert ran(sdpa, cell).path == "sdpa:math"
    assert ran(sdpa, cell, "attention=expanded_heads").path == "sdpa:efficient"


def test_one_kv_head_without_enable_gqa_goes_to_math(sdpa: Table) -> None:
    broadcast = [row.outcome for row in sdpa.rows.values() if row.op == "attention=broadcast_head"]
    assert len(broadcast) >= 18
    assert {found.path for found in broadcast if isinstance(found, Ran)} == {"sdpa:math"}


def test_what_left_math_between_two_torches_is_said_in_one_sentence() -> None:
    before, after = (read(GOLDEN / f"sdpa-cpu-torch{version}.jsonl") for version in ("2.13", "2.14"))
    found = list(changes(before, after))
    assert {(change.kind, change.op) for change in found} == {("improved", "attention=broadcast_head")}
    assert len(found) == len({row.cell for row in after.rows.values()})
    lost = list(changes(after, before))
    assert {change.kind for change in lost} == {"silent_fallback"}


def test_any_mask_turns_flash_off(sdpa: Table) -> None:
    masked = [
        row.outcome
        for row in sdpa.rows.values()
        if isinstance(row.outcome, Ran) and (row.op == "attention=explicit_mask" or "/custom/" in row.cell)
    ]
    assert len(masked) > 100
    assert not [found for found in masked if found.path == "sdpa:flash"]


def test_one_padded_row_costs_the_whole_batch_a_mask() -> None:
    table = read(GOLDEN / "transformers-h200.jsonl")
    even = ran(table, "prefill/bf16/kv-bf16/h32x32x128/contiguous/causal/neox/plain/b4q2048k2048")
    padded = ran(table, "prefill/bf16/kv-bf16/h32x32x128/contiguous/causal/neox/plain/b4q2048k2048skew")
    assert (even.launches, padded.launches) == (2, 5)
    assert "mask_build" not in {kernel.family for kernel in even.kernels}
    assert "mask_build" in {kernel.family for kernel in padded.kernels}
