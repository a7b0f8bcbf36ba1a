"""What the tables of FlexAttention, FlashInfer, xFormers and FlashAttention 4 on an H200 say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from golden.record import FLASHINFER
from kaudit.cell import Cell
from kaudit.findings import findings
from kaudit.matrix import expand, load
from kaudit.observation import Ran, Refused, Skipped, Unmet, is_fallback, is_silent_fallback
from kaudit.table import Table, read
from kaudit_probes.engines.flashinfer_problem import Problem, problem_of
from kaudit_probes.engines.flashinfer_reasons import unmet
from kaudit_probes.engines.torch_attention import SHORT_QUERY

GOLDEN = Path(__file__).parent / "golden"
HOPPER = 90


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("table", names, indirect=True)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    return read(GOLDEN / f"{request.param}-h200.jsonl")


def ran(table: Table, op: str) -> Iterator[tuple[Cell, Ran]]:
    for row in table.rows.values():
        if row.op == op and isinstance(row.outcome, Ran):
            yield Cell.parse(row.cell), row.outcome


def asked(found: Ran, path: str) -> set[str]:
    """The axes of the reasons that were asked for; all are by kaudit's own check, as these engines give none."""
    reasons = [reason for no in found.rejections if (no.path, no.source) == (path, "asked") for reason in no.reasons]
    assert all(str(reason).startswith("kaudit: ") for reason in reasons)
    return {reason.axis for reason in reasons if isinstance(reason, Unmet)}


@of("flex")
def test_the_decode_template_s_grid_is_batch_times_kv_heads_and_the_main_one_s_is_not(table: Table) -> None:
    seen = set()
    for op in ("attention", SHORT_QUERY):
        for cell, found in ran(table, op):
            assert found.path == found.claimed
            grids = [kernel.grid for kernel in found.kernels if kernel.family == "flex"]
            assert grids
            for grid in grids:
                assert grid is not None
                if found.path == "flex:decode":
                    assert cell.shape.batch * cell.heads.kv in grid[:2]  # behind the q blocks, since torch 2.13
                else:
                    assert grid[1:] == (cell.shape.batch, cell.heads.q)
            seen.add((op, found.path))
    assert seen == {("attention", "flex:main"), (SHORT_QUERY, "flex:decode"), (SHORT_QUERY, "flex:main")}


@of("flex")
def test_a_short_query_leaves_the_decode_template_for_its_ratio_of_heads_alone_and_silently(table: Table) -> None:
    for cell, found in ran(table, SHORT_QUERY):
        ratio = cell.heads.q // cell.heads.kv
        assert (found.path == "flex:decode") == (ratio & (ratio - 1) == 0)
        if found.path == "flex:main":
            assert is_silent_fallback(found, table.header.paths[SHORT_QUERY])
            assert asked(found, "flex:decode") == {"gqa_ratio"}


@of("flex")
def test_the_main_template_is_no_fallback_for_a_long_query(table: Table) -> None:
    rows = list(ran(table, "attention"))
    assert rows
    assert not [cell for cell, found in rows if is_fallback(found, table.header.paths["attention"])]


def problems(table: Table, op: str) -> Iterator[tuple[Problem, Ran]]:
    for cell, found in ran(table, op):
        problem = problem_of(cell)
        assert isinstance(problem, Problem)
        yield problem, found


# Cells that joined the matrix after the table: recording it anew takes 13 modules, 200 seconds of 16 cores.
UNRECORDED = {
    "flashinfer-fp16": {
        f"decode/fp16/kv-fp16/{heads}/contiguous/{mask}/none/plain/b1q1k8192"
        for heads in ("h32x8x128", "h32x32x128")
        for mask in ("causal", "window1024")
    }
}


@pytest.mark.parametrize("table", FLASHINFER, indirect=True)
def test_a_flashinfer_table_has_the_cells_of_its_part_and_no_contradiction(
    request: pytest.FixtureRequest, table: Table
) -> None:
    part = request.node.callspec.params["table"]
    engine, only = FLASHINFER[part]
    cells = {cell.id for cell in expand(load("flashinfer")).only(only).cells}
    assert table.header.stamp.engine == engine
    assert {row.cell for row in table.rows.values()} == cells - UNRECORDED.get(part, set())
    assert not [row.key for row in table.rows.values() if isinstance(row.outcome, Ran) and row.outcome.contradiction]


@of("flashinfer-fa2", "flashinfer-fa3")
def test_a_back_end_by_name_runs_or_says_why_not(table: Table) -> None:
    name = table.header.stamp.engine.removeprefix("flashinfer-")
    refused = [(Cell.parse(row.cell), row.outcome) for row in table.rows.values() if isinstance(row.outcome, Refused)]
    assert {found.path for _, found in ran(table, "attention")} == {f"flashinfer:{name}"}
    assert not [row for row in table.rows.values() if not isinstance(row.outcome, Ran | Refused | Skipped)]
    if name == "fa2":
        assert not refused
        return
    for cell, no in refused:
        if cell.mask.kind in ("custom", "tree"):
            assert no.reason.endswith("SM90Run failed with error: operation not supported")
        else:
            assert no.reason.startswith("q_len_per_req > 1 is currently only supported on the fa2 tensor-core backend")
    assert {cell.mask.kind for cell, _ in refused} >= {"custom", "tree", "causal"}


@of("flashinfer-fp16")
def test_softcap_sinks_contiguous_kv_and_fp8_e5m2_ran_in_fp16(table: Table) -> None:
    cells = [cell for cell, _ in ran(table, "attention")]
    assert {feature for cell in cells for feature in cell.features} == {"softcap", "sinks"}
    assert {cell.layout.kind for cell in cells} == {"contiguous", "paged"}
    assert {cell.kv_dtype for cell in cells} == {"fp16", "fp8_e5m2"}


@of("flashinfer", "flashinfer-fp16")
def test_what_kaudit_mirrors_of_flashinfer_is_what_ran(table: Table) -> None:
    """Whoever changes a mirrored condition, or sees FlashInfer change one, is told here."""
    for problem, found in problems(table, "attention"):
        conditions = {condition.axis for condition in unmet(problem, HOPPER)}
        assert found.path == ("flashinfer:fa2" if conditions else "flashinfer:fa3")
        assert asked(found, "flashinfer:fa3") == conditions


@of("flashinfer")
def test_bf16_decode_stays_on_fa2_while_the_prefill_wrapper_of_the_same_cell_takes_fa3(table: Table) -> None:
    decodes = [(p, found) for p, found in problems(table, "attention") if p.entry == "decode" and not fp8_kv(p)]
    assert decodes
    for _, found in decodes:
        assert found.path == "flashinfer:fa2"
        assert is_silent_fallback(found, table.header.paths["attention"])
    twins = [found for p, found in problems(table, "attention=prefill_wrapper") if p.pos_encoding == "NONE"]
    assert {found.path for found in twins} == {"flashinfer:fa2", "flashinfer:fa3"}  # fa2 with fp8 KV
    assert any(finding.kind == "disagreement" and "prefill_wrapper" in finding.op for finding in findings(table))


@of("flashinfer")
def test_fp8_kv_under_a_bf16_query_is_fa2_in_every_phase(table: Table) -> None:
    mixed = [(p.entry, found.path) for p, found in problems(table, "attention") if fp8_kv(p)]
    assert {entry for entry, _ in mixed} >= {"decode", "paged", "ragged"}
    assert {path for _, path in mixed} == {"flashinfer:fa2"}


@of("flashinfer")
def test_prefill_is_fa3_and_a_custom_mask_leaves_it(table: Table) -> None:
    plain = [
        (p.custom_mask, found.path)
        for p, found in problems(table, "attention")
        if p.entry in ("paged", "ragged") and not fp8_kv(p) and p.pos_encoding == "NONE"
    ]
    assert set(plain) == {(False, "flashinfer:fa3"), (True, "flashinfer:fa2")}


@of("flashinfer")
def test_a_wrapper_that_was_planned_for_another_mask_before_keeps_fa2(table: Table) -> None:
    reused = [found for _, found in problems(table, "attention=reused_wrapper")]
    assert reused
    assert {found.path for found in reused} == {"flashinfer:fa2"}
    assert any(finding.kind == "disagreement" and "reused_wrapper" in finding.op for finding in findings(table))


@of("flashinfer-cuda-cores", "flashinfer-cuda-cores-fp16")
def test_without_tensor_cores_decode_has_a_kernel_of_its_own(table: Table) -> None:
    rows = list(ran(table, "attention"))
    assert len(rows) >= 4
    assert {found.path for _, found in rows} == {"flashinfer:cudacore_decode"}


def fp8_kv(problem: Problem) -> bool:
    return problem.kv_dtype != problem.q_dtype


@of("xformers")
def test_xformers_takes_the_first_of_its_order_that_has_no_reason_against_it(table: Table) -> None:
    rows = [row for row in table.rows.values() if isinstance(row.outcome, Ran)]
    assert len({row.outcome.path for row in rows if isinstance(row.outcome, Ran)}) >= 3
    for row in rows:
        assert isinstance(row.outcome, Ran)
        assert row.outcome.path == row.outcome.claimed
        turned_down = [no.path for no in row.outcome.rejections]
        assert (*turned_down, row.outcome.path) == table.header.paths[row.op][: len(turned_down) + 1]
    refused = [row.outcome.reason for row in table.rows.values() if isinstance(row.outcome, Refused)]
    assert not [reason for reason in refused if "wasn't build with CUDA support" in reason]


@of("flash-attn-4")
def test_flash_attention_4_is_itself_on_hopper_and_refuses_in_words(table: Table) -> None:
    rows = list(ran(table, "attention"))
    assert len(rows) >= 25
    assert {(found.path, found.contradiction) for _, found in rows} == {("flash_attn:fa4", False)}
    refused = [row.outcome.reason for row in table.rows.values() if isinstance(row.outcome, Refused)]
    assert {reason.partition(" ")[0] for reason in refused} == {"(head_dim,", "inputs"}
    assert not [row for row in table.rows.values() if not isinstance(row.outcome, Ran | Refused | Skipped)]
