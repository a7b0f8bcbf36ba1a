"""Shards swept apart and merged: the table of one sweep, to the byte, or a line that says why not."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace
from test_sweep import Silent
from typer.testing import CliRunner

from fakes import fake_probe as fake
from fakes.drive_sweep import FAKE_PROBE, cell
from kaudit.cli import app
from kaudit.diff import changes, comparable
from kaudit.errors import UserError
from kaudit.ids import digest
from kaudit.measure import measure_path
from kaudit.merge import merged
from kaudit.observation import Crashed, Row
from kaudit.runs import Checks
from kaudit.shard import Shard
from kaudit.sweep import SweepRequest, sweep
from kaudit.table import Table, cells_of, read, write

CELLS = [cell(1, kv_len) for kv_len in range(1, 21)] + [cell(fake.SEGFAULTS), cell(fake.STICKS)]
SKIPPED = [(cell(3, kv_len), "no such thing") for kv_len in range(1, 6)]
DIGEST = digest(one.id for one in [*CELLS, *(skipped for skipped, _ in SKIPPED)])
COUNT = 3


def swept(out: Path, shard: Shard | None) -> Path:
    request = SweepRequest(FAKE_PROBE, "m", DIGEST, out, checks=Checks(sample=4), shard=shard)
    return sweep(CELLS, SKIPPED, request, Silent())[0]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Table]:
    folder = tmp_path_factory.mktemp("shards")
    paths = [swept(folder / f"{number}.jsonl", Shard(number, COUNT)) for number in range(1, COUNT + 1)]
    return {path: read(path) for path in paths}


def test_merged_shards_are_the_whole_to_the_byte(shards: dict[Path, Table], tmp_path: Path) -> None:
    whole = swept(tmp_path / "whole.jsonl", None)
    out = tmp_path / "merged.jsonl"
    ended = CliRunner().invoke(app, ["merge", *map(str, reversed(shards)), "--out", str(out)])
    assert ended.exit_code == 0
    assert ended.stdout == f"{out}\n"
    assert out.read_bytes() == whole.read_bytes()
    ours, theirs = (pd.read_parquet(path.with_suffix(".measure.parquet")) for path in (out, whole))
    assert ours[["cell", "op"]].equals(theirs[["cell", "op"]])


def test_a_shard_is_compared_with_no_whole_unasked(shards: dict[Path, Table]) -> None:
    part, whole = next(iter(shards.values())), merged(shards)
    with pytest.raises(
        UserError, match=r"not of the same shard \(merge those of a sweep with kaudit merge\) none → 1/3"
    ):
        comparable(whole, part)
    assert not list(changes(whole, part, across=True))
    assert not comparable(part, part)


def test_a_missing_shard_is_named(shards: dict[Path, Table]) -> None:
    first, *_ = shards.items()
    with pytest.raises(UserError, match="shard 2/3, 3/3 is missing"):
        merged(dict([first]))


def test_tables_of_other_sweeps_are_refused_by_field_and_values(shards: dict[Path, Table]) -> None:
    (path, table), *others = shards.items()
    stamp = table.header.stamp
    moved = replace(table.header, stamp=replace(stamp, device=replace(stamp.device, driver="570.2")))
    with pytest.raises(UserError, match=r"stamp\.device\.driver is 570\.2 in .*1\.jsonl and 580\.1 in .*2\.jsonl"):
        merged({path: Table(moved, table.rows), **dict(others)})
    of_four = Table(replace(table.header, shard="1/4"), table.rows)
    with pytest.raises(UserError, match=r"is shard 1/4 and .* is shard 2/3"):
        merged({path: of_four, **dict(others)})
    no_shard = Table(replace(table.header, shard=""), table.rows)
    with pytest.raises(UserError, match="is no shard of a sweep"):
        merged({path: no_shard, **dict(others)})
    strange = Table(replace(table.header, shard="one"), table.rows)
    with pytest.raises(UserError, match=r'1\.jsonl:1: shard: "one" is no part'):
        merged({path: strange, **dict(others)})


def test_a_shard_swept_twice_has_to_agree(shards: dict[Path, Table]) -> None:
    (_, table), *_ = shards.items()
    again = Path("again.jsonl")
    assert merged({**shards, again: table}) == merged(shards)
    key = next(iter(table.rows))
    other = Table.of(table.header, [*table.rows.values(), Row(*key, Crashed("SIGABRT"))])
    with pytest.raises(UserError, match=r"1\.jsonl and again\.jsonl differ in "):
        merged({**shards, again: other})
    key = next(key for key in table.rows if len(cells_of(table)[key[0]]) > 1)
    fewer = Table.of(table.header, [row for row in table.rows.values() if row.key != key])
    for tables in ({again: fewer, **shards}, {**shards, again: fewer}):  # whichever is named first
        with pytest.raises(UserError, match=rf"differ in {re.escape(' '.join(key))}; name one of them"):
            merged(tables)


def test_a_shard_that_lost_cells_is_found(shards: dict[Path, Table]) -> None:
    (path, table), *others = shards.items()
    fewer = Table.of(table.header, list(table.rows.values())[:-2])
    with pytest.raises(UserError, match="not all of the matrix"):
        merged({path: fewer, **dict(others)})


def test_missing_measures_are_told(shards: dict[Path, Table], tmp_path: Path) -> None:
    copies = []
    for number, table in enumerate(shards.values()):
        copies.append(str(tmp_path / f"{number}.jsonl"))
        write(Path(copies[-1]), table)
    ended = CliRunner().invoke(app, ["merge", *copies, "--out", str(tmp_path / "out.jsonl")])
    assert f"no measures beside {copies[0]}" in ended.stderr


def test_measures_of_another_shard_are_not_taken_for_a_shard_s(shards: dict[Path, Table], tmp_path: Path) -> None:
    copies = [Path(shutil.copy(path, tmp_path)) for path in shards]
    first, *_ = shards
    for copy in copies[:2]:
        shutil.copy(measure_path(first), measure_path(copy))
    ended = CliRunner().invoke(app, ["merge", *map(str, copies), "--out", str(tmp_path / "out.jsonl")])
    assert isinstance(ended.exception, UserError)
    assert f"{measure_path(copies[1])}: measures of cells that {copies[1]} has not" in str(ended.exception)
    assert not (tmp_path / "out.jsonl").exists()
