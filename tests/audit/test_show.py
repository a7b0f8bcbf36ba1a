import pytest
from hypothesis import given
from tables_for_tests import CELL, announced, asked, header, ran, tables

from kaudit.errors import UserError
from kaudit.observation import UNCLASSIFIED, Crashed, Kernel, Row
from kaudit.report.columns import COLUMNS, DEFAULT, choose, table
from kaudit.report.story import story
from kaudit.report.text import unclassified
from kaudit.show import select
from kaudit.table import Table
from kaudit.wire import GraphUse

PREFILL = CELL.replace("decode", "prefill").replace("h32x8x128", "h8x8x64")
MIXED = CELL.replace("decode", "mixed")
STRANGE = Kernel("void odd<1>()", UNCLASSIFIED, "other", 2, grid=(8, 1, 1), block=(128, 1, 1), registers=40)
ONE = Table.of(
    header(),
    [
        Row(
            CELL,
            "attention",
            ran("eager", announced("flash"), announced("split", "no page"), asked("split"), claimed="split"),
        ),
        Row(CELL, "rms_norm", ran("fused", kernels=(STRANGE,))),
        Row(PREFILL, "attention", ran("split")),
        Row(MIXED, "*", Crashed("SIGSEGV")),
    ],
)


@pytest.mark.parametrize(
    ("conditions", "keys"),
    [
        ({}, [(CELL, "attention"), (CELL, "rms_norm"), (MIXED, "*"), (PREFILL, "attention")]),
        ({"only": "*/h8x8x64/*"}, [(PREFILL, "attention")]),
        ({"where": ["head_dim=128", "phase=decode"]}, [(CELL, "attention"), (CELL, "rms_norm")]),
        ({"op": "rms_norm"}, [(CELL, "rms_norm"), (MIXED, "*")]),
        ({"only": "decode/*", "op": "attention"}, [(CELL, "attention")]),
    ],
)
def test_rows_are_chosen_by_all_conditions(conditions: dict[str, object], keys: list[tuple[str, str]]) -> None:
    assert [row.key for row in select(ONE, **conditions)] == keys


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"only": "nothing"}, 'matches "nothing"'),
        ({"where": ["headdim=128"]}, "--where headdim=128: not axis=value; the axes are phase, dtype"),
        ({"where": ["head_dim=96"]}, "no cell left has that head_dim; there are 128, 64"),
        ({"where": ["head_dim"]}, "--where head_dim: not axis=value"),
        ({"op": "atention"}, "it has attention, rms_norm"),
    ],
)
def test_a_slip_is_told(conditions: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as error:
        select(ONE, **conditions)
    assert said in str(error.value)


def test_an_id_that_is_none_is_told() -> None:
    spoilt = Table.of(header(), [Row(CELL.replace("b8", "b08"), "attention", ran())])
    with pytest.raises(UserError, match=r"a table holds what is no cell: shape .b08q1k4096. is not"):
        select(spoilt, where=["head_dim=128"])


def test_all_conditions_at_fault_are_told() -> None:
    with pytest.raises(UserError) as error:
        select(ONE, where=["a=1", "b=2"])
    assert len(error.value.faults) == 2


def test_the_story_of_a_cell() -> None:
    assert list(story(ONE, CELL)) == [
        CELL,
        "reference 1 on NVIDIA H200 (sm_90, 132 SMs), driver 570.1",
        "torch=2.10",
        "",
        "attention",
        "  × flash",
        "      announced: head_dim is 96",
        "  × split",
        "      announced: no page",
        "      asked: head_dim=96, needs one of 64, 128",
        "  → eager",
        "  contradiction: attention is claimed to run split, its kernels are those of eager",
        "  fallback, announced: not flash or split",
        "  claimed: split; numerics: unchecked",
        "  graph: eager, asked for eager",
        "  1× eager_kernel",
        "       fa2, attention",
        "",
        "rms_norm",
        "  → fused",
        "  · eager: not reached",
        "  no fallback",
        "  claimed: fused; numerics: unchecked",
        "  graph: eager, asked for eager",
        "  2× void odd<1>()",
        "       UNCLASSIFIED, grid 8×1×1, block 128×1×1, 40 registers",
    ]


def test_the_story_of_a_cell_that_ran_as_a_graph() -> None:
    used = dict.fromkeys(((CELL, "attention"), (CELL, "rms_norm")), GraphUse(4, 11, 8, 3, 1 << 21))
    used[PREFILL, "attention"] = GraphUse(4, 1, 1, 0, None)
    lines = list(story(ONE, CELL, graphs=used))
    assert lines[3] == "CUDA graph: 11 nodes, room for 8 requests, 3 of them padding, 2 MiB set aside"
    assert lines[4:] == list(story(ONE, CELL))[3:]
    assert "CUDA graph: 1 node, room for 1 request, 0 of them padding, memory not known" in story(
        ONE, PREFILL, graphs=used
    )


def test_the_story_of_a_silent_fallback_and_of_a_crash() -> None:
    lines = list(story(ONE, PREFILL))
    assert "  ? flash: no reason is known" in lines
    assert "  silent_fallback: attention runs split instead of flash without a word" in lines
    assert list(story(ONE, MIXED))[-2:] == ["the whole cell", "  crashed (SIGSEGV)"]


def test_a_path_of_which_nothing_is_said_makes_the_fallback_silent_whatever_is_said_of_another() -> None:
    one = Table.of(header(), [Row(CELL, "attention", ran(None, announced("split"), announced("flash")))])
    (row,) = one.rows.values()
    assert COLUMNS["fallback"](row, one.header.paths["attention"]) == "SILENT"
    (told,) = [line for line in story(one, CELL) if "silent_fallback" in line]
    assert "runs kernels of no listed path instead of eager without a word (announced only: split: " in told


def test_an_unknown_cell_brings_its_neighbours() -> None:
    with pytest.raises(UserError) as error:
        list(story(ONE, CELL.replace("k4096", "k4097")))
    assert f"nearest: {CELL}" in str(error.value)


@given(tables())
def test_every_table_can_be_shown_and_told(one: Table) -> None:
    rows = list(one.rows.values())
    assert list(table(rows, tuple(COLUMNS), one.header.paths).lines(80))
    for row in rows:
        assert list(story(one, row.cell))


def printed(width: int | None) -> list[str]:
    return list(table(select(ONE), DEFAULT, ONE.header.paths).lines(width))


def test_a_narrow_terminal_has_ids_on_lines_of_their_own() -> None:
    assert printed(width=80) == [
        "  op         outcome            path   fallback   families      launches",
        CELL,
        "  attention  ran                eager  announced  fa2           1",
        "  rms_norm   ran                fused             UNCLASSIFIED  2",
        MIXED,
        "  *          crashed (SIGSEGV)",
        PREFILL,
        "  attention  ran                split  SILENT     fa2           1",
    ]


def test_a_pipe_has_every_row_on_one_line() -> None:
    lines = printed(width=None)
    assert len(lines) == 1 + len(ONE.rows)
    assert lines[-1].split() == [PREFILL, "attention", "ran", "split", "SILENT", "fa2", "1"]


def test_an_unknown_column_is_told() -> None:
    assert choose(["cell", "grid"]) == ("cell", "grid")
    with pytest.raises(UserError, match="no column grids; there are cell, op"):
        choose(["cell", "grids"])


def test_unclassified_kernels_are_loud() -> None:
    (line,) = unclassified(ONE.rows.values())
    assert line.startswith(f"UNCLASSIFIED KERNEL void odd<1>(): in 1 row, as {CELL} rms_norm;")
