"""What tables of the matrices edges and graphs say on an H200: results at every boundary, and CUDA graphs by op."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaudit.cell import Cell
from kaudit.matrix import load
from kaudit.observation import Ran, Refused, Skipped
from kaudit.table import Table, read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import decide
from kaudit_kernels.graph import launched
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
    assert all(isinstance(outcome, Skipped) and "shares whole pages" in outcome.reason for outcome in others)
    assert len(others) == 2


def test_what_is_asked_for_as_a_graph_is_one_or_says_why() -> None:
    """The sweep was cut off with 33 of the matrix's cells finished."""
    got = Counter[str]()
    for cell, _, outcome in ran(TABLES["graphs"]):
        asked = "cuda_graph" in cell.features
        assert (outcome.graph_got == "full") == (asked and not outcome.ungraphed)
        got[outcome.graph_got if asked else "not asked"] += 1
    assert got.keys() == {"full", "eager", "not asked"}


def test_filling_up_costs_no_graph_its_cascade() -> None:
    padded = {cell.id for cell, _, outcome in ran(TABLES["graphs"]) if outcome.path == "cascade_decode"}
    for shape in ("b9q1k8193", "b17q1k4097"):
        for features in ("cuda_graph+prefix_share", "cuda_graph+preempted+prefix_share"):
            assert any(cell.endswith(f"/{features}/{shape}") for cell in padded)


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_of_the_shipped_matrix(name: str) -> None:
    assert TABLES[name].header.stamp.matrix == load(name).name
