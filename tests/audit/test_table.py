from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables_for_tests import CELL, header, ran, table, tables

from kaudit.errors import UserError
from kaudit.observation import Row
from kaudit.table import SCHEMA, Table, cells_of, read, read_cells, write


@given(tables())
def test_a_table_reads_back_and_is_written_the_same(one: Table) -> None:
    with TemporaryDirectory() as folder:
        first, second = Path(folder) / "first.jsonl", Path(folder) / "second.jsonl"
        write(first, one)
        again = read(first)
        assert again == one
        write(second, again)
        assert first.read_bytes() == second.read_bytes()


@given(tables(), st.randoms())
def test_the_order_in_which_rows_come_leaves_no_trace(one: Table, random: st.DataObject) -> None:
    rows = list(one.rows.values())
    random.shuffle(rows)
    assert list(Table.of(one.header, rows).rows) == list(one.rows)


@given(tables())
def test_one_row_is_one_line(one: Table) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        write(path, one)
        content = path.read_bytes()
    assert content.endswith(b"\n")
    assert len(content.splitlines()) == 1 + len(one.rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    write(path, table(ran()))
    return path


def test_a_failed_write_leaves_the_old_table_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left on device; choose another --out"):
        write(path, table(ran("eager")))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose another --out"):
        write(tmp_path / "none" / "t.jsonl", table(ran()))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not a row of a table"),
        (b"garbage", "not a row of a table"),
        (b"\xff\xfe", "not a row of a table"),
        (b'{"cell": "a", "op": "b"}', "missing required field `outcome`"),
        (b'{"cell": "a", "op": "b", "outcome": {"type": "exploded"}}', "Invalid value 'exploded'"),
        (b'{"cell": "a", "op": "b", "outcome": {"type": "ran", "path": 1, "kernels": []}}', "not a row of a table"),
        pytest.param(b'{"cell": "a", "op": "b", "outcome": ' + b"[" * 100_000, "not a row of a table", id="deep"),
        (b'{"cell": "a", "op": "odd", "outcome": {"type": "refused", "reason": ""}}', "no paths listed for odd"),
        (b'{"cell": "odd", "op": "*", "outcome": {"type": "ran", "path": null, "kernels": []}}', "no paths listed for"),
    ],
)
def test_a_corrupted_line_is_named(path: Path, line: bytes, said: str) -> None:
    path.write_bytes(path.read_bytes().replace(b'"rows":1', b'"rows":2') + line + b"\n")
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:{1 if b'odd' in line else 3}: ")
    assert said in str(error.value)


@given(st.data())
def test_a_table_cut_short_is_no_smaller_table(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        write(path, Table.of(header(), [Row(CELL, op, ran("eager")) for op in ("attention", "rms_norm")]))
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 2))])  # the last byte ends the last line
        with pytest.raises(UserError):
            read(path)


def test_a_row_that_stands_twice_is_refused(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content + content.splitlines(keepends=True)[1])
    with pytest.raises(UserError, match=r":3: .* attention stands twice"):
        read(path)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"", "the file is empty"),
        (b"{}\n", "not the header of a table"),
        (b"[1]\n", "not the header of a table"),
        pytest.param(b'{"schema": 1, "x": ' + b"[" * 100_000, "not the header of a table", id="deep"),
        (b'{"schema": %d}\n' % (SCHEMA + 1), "is newer than this kaudit's"),
        (b'{"schema": %d}\n' % (SCHEMA - 1), "is older than this kaudit's"),
        (b'{"schema": %d}\n' % SCHEMA, "missing required field"),
    ],
)
def test_what_is_no_table_of_this_schema_is_refused(path: Path, first: bytes, said: str) -> None:
    path.write_bytes(first)
    with pytest.raises(UserError) as error:
        read(path)
    assert said in str(error.value)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file or directory; name a table"):
        read(tmp_path / "none.jsonl")


def test_the_rows_of_a_cell_stay_together() -> None:
    one = Table.of(header(), [Row(CELL, "rms_norm", ran("fused")), Row(CELL, "attention", ran())])
    assert {cell: [row.op for row in rows] for cell, rows in cells_of(one).items()} == {CELL: ["attention", "rms_norm"]}


def test_the_cells_of_a_table_are_read_without_its_outcomes(path: Path) -> None:
    assert read_cells(path) == {CELL}
    first, row = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, row[:-9], b""]))
    with pytest.raises(UserError, match=r"t\.jsonl: not a row of a table: .*; restore it or sweep again"):
        read_cells(path)
