"""What a matrix expects of a table, and the sentence for each expectation that is not met."""

import pytest
from tables_for_tests import CELL, header

from kaudit.errors import UserError
from kaudit.expect import check_names, unmet
from kaudit.matrix import Expectation
from kaudit.matrix.rules import When
from kaudit.observation import WHOLE_CELL, Crashed, Hung, Kernel, Outcome, Ran, Refused, Row, Skipped, Unseen
from kaudit.table import Table

ALL = When(())
KERNELS = (Kernel("copy_kernel", "copy", "copy", 1), Kernel("flash_fwd", "fa2", "attention", 2))


def said(outcome: Outcome, expectation: Expectation, op: str = "attention") -> list[str]:
    return [str(miss) for miss in unmet(Table.of(header(), [Row(CELL, op, outcome)]), [expectation])]


@pytest.mark.parametrize(
    "expectation",
    [
        Expectation(ALL, path="flash"),
        Expectation(ALL, family="fa2"),
        Expectation(ALL, most_launches=3),
        Expectation(ALL, path="flash", most_launches=3),
        Expectation(When((("phase", ("decode",)), ("head_dim", ("64", "128")))), path="flash"),
    ],
)
def test_met(expectation: Expectation) -> None:
    assert said(Ran("flash", KERNELS), expectation) == []


@pytest.mark.parametrize(
    ("outcome", "expectation", "sentence"),
    [
        (Ran("eager", KERNELS), Expectation(ALL, path="flash"), "expected path flash, saw path eager in 3 launches"),
        (
            Ran(None, KERNELS),
            Expectation(ALL, path="flash"),
            "expected path flash, saw path unrecognised in 3 launches",
        ),
        (
            Ran("flash", KERNELS),
            Expectation(ALL, family="fa3", because="Hopper"),
            "expected a kernel of family fa3 (Hopper), saw copy, fa2 in 3 launches",
        ),
        (
            Ran("flash", ()),
            Expectation(ALL, family="fa3"),
            "expected a kernel of family fa3, saw no kernels in 0 launches",
        ),
        (
            Ran("flash", KERNELS),
            Expectation(ALL, path="flash", most_launches=2),
            "expected path flash and at most 2 launches, saw path flash in 3 launches",
        ),
        (Ran("flash", KERNELS), Expectation(ALL, refuses=True), "expected a refusal, saw path flash in 3 launches"),
        (Refused("no fp8"), Expectation(ALL, path="flash"), "expected path flash, saw a refusal: no fp8"),
        (Crashed("SIGSEGV"), Expectation(ALL, refuses=True), "expected a refusal, saw a crash: SIGSEGV"),
        (Hung(60.0), Expectation(ALL, path="flash"), "expected path flash, saw a hang of 60 s"),
        (
            Unseen("no sentinel"),
            Expectation(ALL, most_launches=1),
            "expected at most 1 launch, saw nothing that can be vouched for: no sentinel",
        ),
    ],
)
def test_not_met(outcome: Outcome, expectation: Expectation, sentence: str) -> None:
    op = "attention" if isinstance(outcome, Ran) else WHOLE_CELL
    assert said(outcome, expectation, op) == [f"{CELL} attention: {sentence}"]


def test_a_refusal_is_met_by_a_refused_cell() -> None:
    assert said(Refused("no fp8"), Expectation(ALL, refuses=True), WHOLE_CELL) == []


def test_an_op_that_the_cell_does_not_have_is_not_met() -> None:
    assert said(Ran("flash", KERNELS), Expectation(ALL, op="sample", path="x")) == [
        f"{CELL} sample: expected path x, saw no such op, only attention"
    ]


@pytest.mark.parametrize(
    ("outcome", "when"), [(Ran("flash", KERNELS), When((("phase", ("prefill", "mixed")),))), (Skipped("no"), ALL)]
)
def test_an_expectation_that_asks_no_cell_is_stale(outcome: Outcome, when: When) -> None:
    (sentence,) = said(outcome, Expectation(when, path="flash"))
    has = "phase=prefill|mixed" if when.keys else "anything"
    assert sentence == f"stale: no cell that was run has {has}, where path flash is expected"


def test_only_paths_and_ops_that_neither_table_lists_are_slips() -> None:
    before, after = header({"attention": ("flash", "eager")}), header({"attention": ("eager",)})
    tables = Table.of(before, []), Table.of(after, [])
    check_names(
        [Expectation(ALL, path="flash"), Expectation(ALL, family="fa3"), Expectation(ALL, refuses=True)], *tables
    )
    with pytest.raises(UserError) as error:
        slips = Expectation(ALL, path="flsh"), Expectation(ALL, path="flsh"), Expectation(ALL, op="smple", path="eager")
        check_names(slips, *tables)
    assert error.value.faults == (
        '--expect: "flsh" is not a path of attention; the engine lists flash, eager',
        '--expect: "smple" is not an op of this engine; it has attention',
    )


def test_an_id_that_is_none_is_told() -> None:
    spoilt = Table.of(header(), [Row(CELL.replace("b8", "b08"), "attention", Ran("flash", KERNELS))])
    with pytest.raises(UserError, match=r"a table holds what is no cell: shape .b08q1k4096. is not .*; restore it or"):
        list(unmet(spoilt, [Expectation(ALL, path="flash")]))
