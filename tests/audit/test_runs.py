"""Which cells a sweep runs again, and which are a shard's."""

from pathlib import Path

import pytest
from test_sweep import Silent

from fakes import fake_probe as fake
from fakes.drive_sweep import FAKE_PROBE, cell
from kaudit.errors import UserError
from kaudit.runs import ALONE, Checks, Run, runs
from kaudit.shard import Shard
from kaudit.sweep import SweepRequest, sweep

CELLS = [cell(batch, kv_len) for batch in (1, 2, 3) for kv_len in (16, 64, 256, 1024)]
IDS = {one.id for one in CELLS}


def named(checks: Checks, own: set[str] = IDS, digest: str = "d1") -> dict[str, Run]:
    return {run.name: run for run in runs(checks, CELLS, own, digest)}


def test_a_sweep_runs_each_cell_once() -> None:
    first, alone = runs(Checks(), CELLS, IDS, "d1")
    assert (first.name, first.cells, first.fresh) == ("", CELLS, False)
    assert not alone.cells


def test_a_sample_is_drawn_from_the_digest_or_the_seed() -> None:
    sample = named(Checks(sample=4))[ALONE]
    assert sample.fresh
    assert len(set(sample.cells)) == 4
    assert sample == named(Checks(sample=4))[ALONE]
    assert sample.cells == named(Checks(sample=6))[ALONE].cells[:4]
    assert sample.cells != named(Checks(sample=4), digest="d2")[ALONE].cells
    assert sample.cells != named(Checks(sample=4, seed=7))[ALONE].cells
    assert named(Checks(sample=4, seed=7), digest="d2")[ALONE] == named(Checks(sample=4, seed=7))[ALONE]
    assert len(named(Checks(sample=100))[ALONE].cells) == len(CELLS)


def test_the_shards_have_the_sample_between_them() -> None:
    whole = named(Checks(sample=5))[ALONE].cells
    parts = [named(Checks(sample=5), Shard(number, 3).part(CELLS))[ALONE].cells for number in (1, 2, 3)]
    assert sorted(one.id for part in parts for one in part) == sorted(one.id for one in whole)


def test_shards_are_equal_and_share_nothing() -> None:
    parts = [Shard(number, 4).part(CELLS) for number in range(1, 5)]
    assert set.union(*parts) == IDS
    assert sum(map(len, parts)) == len(CELLS)
    assert {len(part) for part in parts} == {3}
    assert Shard(1, 4).part(CELLS[::-1]) == parts[0]


def test_no_shard_gets_all_the_longest() -> None:
    cells = [cell(batch, kv_len) for batch in range(1, 33) for kv_len in (16, 64, 256, 4096)]
    longest = {one.id for one in cells if one.shape.kv_len == 4096}
    assert max(len(longest & Shard(number, 4).part(cells)) for number in range(1, 5)) < 16


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_what_is_no_shard_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="no part of a sweep; write 1/4 to 4/4"):
        Shard.parse(text)
    assert str(Shard.parse("2/8")) == "2/8"


def test_a_sweep_with_all_its_runs_resumes_to_the_same_table(tmp_path: Path) -> None:
    cells = [cell(1), cell(fake.STICKS), cell(fake.SEGFAULTS), cell(2)]

    def request(name: str, *, resume: bool = False, repeat: int = 2) -> SweepRequest:
        checks = Checks(sample=len(cells), repeat=repeat)
        return SweepRequest(FAKE_PROBE, "m", "d1", tmp_path / name, resume=resume, checks=checks)

    told = Silent()
    _, table = sweep(cells, [], request("whole.jsonl"), told)
    assert (told.counts[:2], told.counts[-1]) == ([0, 12], 12)
    (varying,) = [row for row in table.rows.values() if row.others]
    assert varying.key == (cell(fake.STICKS).id, "attention")
    assert [other.run for other in varying.others] == ["alone"]
    for done in (4, 7, 10):
        out = f"{done}.jsonl"
        with pytest.raises(KeyboardInterrupt):
            sweep(cells, [], request(out), Impatient(done))
        with pytest.raises(UserError, match="repeat was 2, is now 1"):
            sweep(cells, [], request(out, resume=True, repeat=1), Silent())
        sweep(cells, [], request(out, resume=True), Silent())
        assert (tmp_path / out).read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


class Impatient(Silent):
    """Interrupts once so many cells are done."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def finished(self, done: int) -> None:
        super().finished(done)
        if done >= self.after:
            raise KeyboardInterrupt
