import itertools
import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from tables_for_tests import header, ran

from kaudit.change import Change
from kaudit.diff import changes
from kaudit.errors import UserError
from kaudit.explain import explain, rules
from kaudit.literals import Grid
from kaudit.observation import Crashed, Outcome, Row
from kaudit.report import text
from kaudit.table import Table

CELLS = [
    "/".join((phase, "bf16", kv, heads, layout, mask, "neox", features, f"b8q1k{kv_len}"))
    for phase, kv, heads, layout, mask, features, kv_len in itertools.product(
        ("decode", "chunked_prefill"),
        ("kv-bf16", "kv-fp8_e4m3"),
        ("h32x8x128", "h8x8x64", "h16x2x256"),
        ("contiguous", "paged8", "paged16"),
        ("causal", "window1024"),
        ("plain", "sinks"),
        (256, 1024, 4096, 8192),
    )
]
KEYS = [(cell, "attention") for cell in CELLS]


def found(moved: Callable[[str], bool]) -> list[str]:
    return [str(rule) for rule in rules(Grid.of(KEYS), np.array([moved(cell) for cell in CELLS]))]


@pytest.mark.parametrize(
    ("moved", "rule"),
    [
        (lambda cell: "x256/" in cell, "head_dim=256: 192 of 192 moved, 0 of 384 others"),
        (lambda cell: "sinks" in cell, "sinks=yes: 288 of 288 moved, 0 of 288 others"),
        (
            lambda cell: "x256/" in cell and "fp8" in cell,
            "kv_dtype=fp8_e4m3 and head_dim=256: 96 of 96 moved, 0 of 480 others",
        ),
        (
            lambda cell: "paged8" in cell and "decode" in cell and "k4096" in cell,
            "phase=decode and page_size=8 and kv_len=4096: 24 of 24 moved, 0 of 552 others",
        ),
        (lambda cell: not cell.endswith("k256"), "kv_len>=1024: 432 of 432 moved, 0 of 144 others"),
        (
            lambda cell: cell.endswith(("k1024", "k4096")) and "causal" in cell,
            "mask=causal and kv_len>=1024 and kv_len<8192: 144 of 144 moved, 0 of 432 others",
        ),
        (lambda _: True, "all of them: 576 of 576 moved, 0 of 0 others"),
    ],
)
def test_the_shortest_exact_rule_is_found(moved: Callable[[str], bool], rule: str) -> None:
    assert found(moved) == [rule]


def test_two_causes_are_two_rules() -> None:
    assert found(lambda cell: ("x256/" in cell and "fp8" in cell) or ("paged8" in cell and "sinks" in cell)) == [
        "kv_dtype=fp8_e4m3 and head_dim=256: 96 of 176 moved, 0 of 400 others",
        "page_size=8 and sinks=yes: 96 of 176 moved, 0 of 400 others",
    ]


def test_a_rule_with_exceptions_tells_its_counts() -> None:
    odd = {CELLS[3], CELLS[200]}
    (rule,) = found(lambda cell: ("x256/" in cell) != (cell in odd))
    assert rule.startswith("head_dim=256: 1")


def test_chance_is_not_explained() -> None:
    dice = random.Random(0)
    chosen = set(dice.sample(CELLS, 40))
    assert found(lambda cell: cell in chosen) == []
    assert found(lambda cell: cell == CELLS[5]) == []


def two_tables(after: Callable[[str], Outcome]) -> tuple[list[Change], Table, Table]:
    """Two ops; `after` is what becomes of attention."""
    before = Table.of(header(), [Row(cell, op, ran(path)) for cell in CELLS for op, path in OPS])
    rows = []
    for cell in CELLS:
        match after(cell):
            case Crashed() as crash:
                rows.append(Row(cell, "*", crash))
            case outcome:
                rows += [Row(cell, "attention", outcome), Row(cell, "rms_norm", ran("fused"))]
    now = Table.of(header(), rows)
    return list(changes(before, now)), before, now


OPS = (("attention", "flash"), ("rms_norm", "fused"))


def test_changes_of_one_op_are_set_against_that_op() -> None:
    lost = two_tables(lambda cell: ran("eager") if "x256/" in cell else ran("flash"))
    explained = explain(*lost)
    assert {kind: [str(rule) for rule in of_kind] for kind, of_kind in explained.items()} == {
        "silent_fallback": ["head_dim=256: 192 of 192 moved, 0 of 384 others"]
    }
    lines = list(text.changes(lost[0], explained, limit=2))
    assert lines[0].startswith("silent_fallback: 192 (")
    assert lines[1:3] == [
        "  head_dim=256: 192 of 192 moved, 0 of 384 others",
        "  attention left flash for eager without a word (192 cells)",
    ]
    assert lines[5:] == ["  and 190 more", ""]


def test_crashed_cells_are_set_against_cells() -> None:
    explained = explain(*two_tables(lambda cell: Crashed("SIGSEGV") if "paged8" in cell else ran("flash")))
    assert [str(rule) for rule in explained["crashed"]] == ["page_size=8: 192 of 192 moved, 0 of 384 others"]


@pytest.mark.parametrize("spoilt", [CELLS[0].replace("b8", "b08"), "decode"])
def test_an_id_that_is_none_is_told(spoilt: str) -> None:
    before = Table.of(header(), [Row(cell, "attention", ran()) for cell in (spoilt, *CELLS[1:3])])
    after = Table.of(header(), [Row(cell, "attention", ran("eager")) for cell in (spoilt, *CELLS[1:3])])
    with pytest.raises(UserError, match="a table holds what is no cell") as told:
        explain(changes(before, after), before, after)
    assert told.value.page == "docs/table.md"


def test_an_axis_may_have_as_many_values_as_there_are_rows() -> None:
    cells = [CELLS[0].replace("k256", f"k{kv_len}") for kv_len in range(1, 20_001)]
    tracemalloc.start()
    try:
        grid = Grid.of([(cell, "attention") for cell in cells])
        (rule,) = rules(grid, np.arange(1, 20_001) >= 12_345)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(rule) == "kv_len>=12345: 7656 of 7656 moved, 0 of 12344 others"
    assert peak < 100e6  # a matrix of its literals by its values has 1.2e9 elements


def test_the_order_of_rows_does_not_matter() -> None:
    shuffled = random.Random(1).sample(CELLS, len(CELLS))
    grid = Grid.of([(cell, "attention") for cell in shuffled])
    (rule,) = rules(grid, np.array(["x256/" in cell and "fp8" in cell for cell in shuffled]))
    assert rule.literals == ("kv_dtype=fp8_e4m3", "head_dim=256")
