"""What tables of the matrices edges and graphs say on an H200: results at every boundary, and CUDA graphs by op."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kaudit.cell import Cell
from kaudit.matrix import load
from kaudit.observation import Ran, Refused, Unseen
from kaudit.table import Table, read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.graph import BUCKETS, launched
from kaudit_probes.engines.reference import problem_of

GOLDEN = Path(__file__).parent / "golden"
TABLES = {name: read(GOLDEN / f"{name}-h200.jsonl") for name in ("edges", "graphs")}
both = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())


def ran(table: Table) -> Iterator[tuple[Cell, str, Ran]]:
    for row in table.rows.values():
        if isinstance(row.outcome, Ran):
            yield Cell.parse(row.cell), row.op, row.outcome


@both
def test_every_result_is_right_and_every_claim_true(table: Table) -> None:
    assert table.header.numerics
    assert {outcome.numerics for _, _, outcome in ran(table)} == {"ok"}
    assert not [cell.id for cell, _, outcome in ran(table) if outcome.contradiction or outcome.ignored]


@both
def test_today_s_predicates_choose_what_ran(table: Table) -> None:
    sms = table.header.stamp.device.sm_count
    for cell, op, outcome in ran(table):
        problem = launched(problem_of(cell, 90, sms))
        assert decide(op, problem, CATALOGUE).chosen.name == outcome.path, (cell.id, op)


def test_the_edges_are_whole_and_what_is_no_cell_is_refused_in_words() -> None:
    table = TABLES["edges"]
    assert len({row.cell for row in table.rows.values()}) >= 200
    refused = {row.cell: row.outcome.reason for row in table.rows.values() if isinstance(row.outcome, Refused)}
    assert len(refused) == 10
    for cell, reason in refused.items():
        assert reason.startswith("last_page_len=" if "bad_last_page" in cell else "kv_heads=")
    others = [row.outcome for row in table.rows.values() if not isinstance(row.outcome, Ran | Refused)]
    assert not others


def test_a_batch_up_to_the_last_bucket_is_one_graph_and_what_is_none_says_why() -> None:
    for cell, _, outcome in ran(TABLES["graphs"]):
        asked = "cuda_graph" in cell.features
        assert (outcome.graph_got == "full") == (asked and not outcome.ungraphed)
        if asked and cell.phase == "decode" and cell.shape.batch > BUCKETS[-1]:
            assert "batch" in {reason.axis for reason in outcome.ungraphed if hasattr(reason, "axis")}


def test_what_the_capture_could_not_vouch_for_is_one_cell() -> None:
    """Its split-K product fills memory, which one replay names and the next does not: names told those apart when the
    table was recorded, and do not any more."""
    (row,) = [row for row in TABLES["graphs"].rows.values() if not isinstance(row.outcome, Ran)]
    assert isinstance(row.outcome, Unseen)
    assert "Memset" in row.outcome.why


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_of_the_shipped_matrix(name: str) -> None:
    assert TABLES[name].header.stamp.matrix == load(name).name
