"""A matrix says whether results are checked, the table whether they were, and a diff knows the difference."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tables_for_tests import CELL, announced, header, ran, table
from typer.testing import CliRunner

from kaudit.cli import app
from kaudit.diff import changes, comparable
from kaudit.errors import UserError
from kaudit.findings import findings
from kaudit.matrix import load
from kaudit.observation import Other, Row
from kaudit.table import Table, read

MATRIX = """
name: mine
numerics: {}
axes: {{dtype: [fp32], heads: [h2x1x32], rope: [none], shape: [b1q4k4]}}
"""


def swept(folder: Path, says: str, *options: str) -> Table:
    matrix, out = folder / "mine.yaml", folder / "t.jsonl"
    matrix.write_text(MATRIX.format(says))
    found = CliRunner().invoke(app, ["sweep", str(matrix), "--device", "cpu", "--out", str(out), *options])
    assert found.exit_code == 0, found.output
    return read(out)


@pytest.mark.parametrize(
    ("says", "options", "checked"),
    [("true", (), True), ("true", ("--no-numerics",), False), ("false", (), False), ("false", ("--numerics",), True)],
)
def test_the_matrix_says_it_unless_the_command_line_does(
    tmp_path: Path, says: str, options: tuple[str, ...], checked: bool
) -> None:
    found = swept(tmp_path, says, *options)
    verdicts = {row.outcome.numerics for row in found.rows.values()}  # type: ignore[union-attr]
    assert (found.header.numerics, verdicts) == (checked, {"ok"} if checked else {"unchecked"})


def test_what_the_key_may_say(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(MATRIX.format('"often"'))
    with pytest.raises(UserError, match=r'm\.yaml:3:11: numerics is "often", needs true or false'):
        load(str(tmp_path / "m.yaml"))


def test_release_and_edges_are_checked_and_others_are_not() -> None:
    assert load("release").numerics
    assert load("edges").numerics
    assert load("graphs").numerics
    assert not load("smoke").numerics


def checked(found: Table) -> Table:
    return Table(replace(found.header, numerics=True), found.rows)


def test_that_one_table_is_checked_is_told_once_and_changes_no_cell() -> None:
    plain, right = table(ran()), checked(table(ran(numerics="ok")))
    for before, after in ((plain, right), (right, plain)):
        assert not list(changes(before, after))
        (line,) = comparable(before, after)
        assert line == f"results checked {before.header.numerics} → {after.header.numerics}"


def test_nor_does_it_change_what_another_run_of_the_cell_showed() -> None:
    def flapping(numerics: str) -> Table:
        split = Other("again", "attention", ran("split", announced("flash"), numerics=numerics))
        return Table.of(header(), [Row(CELL, "attention", ran(numerics=numerics), (split,))])

    plain, right = flapping("unchecked"), checked(flapping("ok"))
    assert not list(changes(plain, right))
    assert not list(changes(right, plain))


def test_a_result_that_is_wrong_is_told_whatever_the_other_table_knows() -> None:
    plain, wrong = table(ran()), checked(table(ran(numerics="wrong", ignored="softcap")))
    (change,) = changes(plain, wrong)
    assert change.kind == "wrong_result"
    assert "that without softcap: an ignored feature" in change.sentence
    (found,) = findings(wrong)
    assert (found.kind, found.sentence) == ("ignored_feature", "attention: ignored feature: softcap")


def test_a_feature_that_is_ignored_in_anothers_place_is_no_new_wrong_result() -> None:
    before, after = (checked(table(ran(numerics="wrong", ignored=name))) for name in ("softcap", "sinks"))
    (change,) = changes(before, after)
    assert change.kind == "reason_changed"
    assert change.sentence.endswith("that without sinks: an ignored feature; before: softcap")
