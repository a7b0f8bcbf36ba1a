"""What a user sees of times: sweep --timing, bench, show --timing, diff --timing, and a gate on slower."""

import csv
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from tables_for_tests import header, ran
from test_cli import NO_TORCH, kaudit
from times_for_tests import cells, table, timed

from kaudit.measure import MANIFEST, measure_path, read_timings
from kaudit.measure import write as write_measures
from kaudit.observation import WHOLE_CELL, Row
from kaudit.report.times import times
from kaudit.table import Table, write
from kaudit.timing import Timing
from kaudit.wire import Measure

MATRIX = """
name: tiny
axes:
  phase: [prefill]
  dtype: [fp32]
  kv_dtype: [same]
  heads: [h4x2x32]
  kv_layout: [contiguous]
  mask: [causal]
  rope: [none]
  features: [plain]
  shape: [b1q32k32]
"""
CELL = "prefill/fp32/kv-fp32/h4x2x32/contiguous/causal/none/plain/b1q32k32"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    (folder / "tiny.yaml").write_text(MATRIX)
    out = folder / "v1.jsonl"
    ended = kaudit("sweep", folder / "tiny.yaml", "--engine", "sdpa", "--device", "cpu", "--timing", "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert "times: 4 of 4, of ops and of whole cells" in ended.stderr
    return out


def test_a_sweep_measures_each_op_and_the_cell(swept: Path) -> None:
    found = read_timings(swept)
    assert {op for _, op in found} == {"attention", "attention=expanded_heads", "attention=explicit_mask", WHOLE_CELL}
    for timing in found.values():
        assert timing.clock == "wall" and len(timing.samples_us) >= 10 and not timing.unknown
    whole = found[CELL, WHOLE_CELL]
    assert whole.first_us and whole.second_us and whole.peak_bytes


def test_show_prints_them_and_saves_them_with_all_that_they_hang_on(swept: Path, tmp_path: Path) -> None:
    heading, *lines = kaudit("show", swept, "--timing", code=NO_TORCH).stdout.splitlines()
    assert heading.split()[:4] == ["cell", "op", "path", "fallback"]
    assert len(lines) == 4
    out = tmp_path / "times.csv"
    assert kaudit("show", swept, "--timing", "--op", "attention", "--csv", out).returncode == 0
    with out.open() as file:
        whole, row = csv.DictReader(file)
    assert (whole["op"], row["op"]) == (WHOLE_CELL, "attention")
    assert (row["phase"], row["batch_tokens"], row["context_tokens"], row["kv_heads"]) == ("prefill", "32", "32", "2")
    assert row["path"] == "sdpa:flash" and row["backend"] and row["engine"] == "sdpa" and row["software.torch"]
    assert float(row["median_us"]) > 0 and row["gpu"] == "cpu"
    # Not measured on a CPU is empty, never 0.
    assert row["span_us"] == row["sm_mhz"] == ""


def test_bench_times_one_cell_and_says_what_the_figures_hang_on(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    saved, samples = tmp_path / "t.csv", tmp_path / "t.parquet"
    ended = kaudit("bench", CELL, "--engine", "sdpa", "--device", "cpu", "--csv", saved, "--parquet", samples)
    assert ended.returncode == 0, ended.stderr
    for begin in ("hardware: cpu", "software: sdpa", "shape: phase prefill", "measurement: ", "first call "):
        assert any(line.startswith(begin) for line in ended.stdout.splitlines()), begin
    assert "caches as the last run left them" in ended.stdout
    assert len(saved.read_text().splitlines()) == 5
    read = pq.read_table(samples)
    assert json.loads(read.schema.metadata[MANIFEST])["engine"] == "sdpa"
    assert all(len(taken) >= 10 for taken in read["timing.samples_us"].to_pylist())
    assert {file.name for file in tmp_path.iterdir()} == {"t.csv", "t.parquet"}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["bench", "decode/bf17"], "has 2 parts"),
        (["bench", CELL.replace("q32k32", "q32k64"), "--device", "cpu"], "prefill has no earlier tokens"),
        (["bench", CELL, "--device", "sm_90"], '--device: "sm_90" is not one of auto, cpu, cuda'),
        (["bench", CELL.replace("contiguous", "paged16"), "--engine", "sdpa", "--device", "cpu"], "nothing to time"),
        (["bench", CELL, "--device", "cpu", "--csv", "none/t.csv"], "none/t.csv: none is not a folder that can be wri"),
        (["bench", CELL, "--device", "cpu", "--parquet", "/"], "/: Is a directory; name a file that can be written"),
        (["bench", CELL, "--device", "cpu", "--csv", "t" * 300], "File name too long; name a file that can be written"),
        (["bench", CELL, "--device", "cpu", "--csv", "t", "--parquet", "t"], "--parquet: t is that of --csv, too"),
        (["sweep", "smoke", "--timing", "--jobs", "2"], "--timing: probes that share a device"),
    ],
)
def test_what_cannot_be_timed_is_one_line(arguments: list[str], fault: str) -> None:
    ended = kaudit(*arguments)
    assert ended.returncode == 2 and ended.stdout == ""
    assert fault in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith("error: ")


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Twelve cells; two of the newer table's take 1.3 times as long."""
    ids = cells(12)
    for name, seed, slow in (("v1", 1, []), ("v2", 2, ids[:2])):
        path = tmp_path / f"{name}.jsonl"
        whole = table(ids)
        write(path, whole)
        measures = [Measure(*key, 1.0, timing=one) for key, one in timed(seed, ids, 1.3, slow).items()]
        write_measures(measure_path(path), measures, whole.header.stamp)
    return tmp_path / "v1.jsonl", tmp_path / "v2.jsonl"


def test_a_diff_names_what_got_slower_only_where_times_are_asked_for(sides: tuple[Path, Path]) -> None:
    ended = kaudit("diff", *sides, "--timing", code=NO_TORCH)
    assert "slower: 4 (takes longer than before, beyond the measured noise)" in ended.stdout
    assert "batch<3: 4 of 4 moved, 0 of 20 others" in ended.stdout
    assert "times: 36 ops and whole cells compared" in ended.stderr
    ended = kaudit("diff", *sides)
    assert (ended.stdout, ended.stderr) == ("", "nothing changed\n")


def test_times_of_another_sweep_are_not_those_of_a_table(sides: tuple[Path, Path]) -> None:
    header = table(cells(12)).header
    stamp = replace(header.stamp, revision="another")
    write_measures(
        measure_path(sides[1]), [Measure(*key, 1.0, timing=one) for key, one in read_timings(sides[1]).items()], stamp
    )
    ended = kaudit("diff", *sides, "--timing")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert f"{measure_path(sides[1])}: its measures are of another sweep than {sides[1]}" in line


def test_a_policy_may_fail_on_slower_and_then_times_must_be_compared(sides: tuple[Path, Path], tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("fail_on: [slower]\n")
    ended = kaudit("gate", *sides, "--timing", "--policy", policy)
    assert ended.returncode == 1 and "gate failed: 4 slower" in ended.stderr
    assert kaudit("gate", *sides, "--timing").returncode == 0
    # What cannot be compared is no pass.
    after = read_timings(sides[1])
    apart = [Measure(*key, 1.0, timing=replace(one, sm_mhz=(900,) * bool(one.sm_mhz))) for key, one in after.items()]
    write_measures(measure_path(sides[1]), apart, table(cells(12)).header.stamp)
    ended = kaudit("gate", *sides, "--timing", "--policy", policy)
    assert ended.returncode == 2 and "more than 5% apart; none are left to judge by" in ended.stderr
    assert kaudit("gate", *sides, "--timing").returncode == 0
    ended = kaudit("gate", *sides, "--policy", policy)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: --policy: fails on slower, which only --timing looks for; add it")


def test_tables_without_times_are_told_apart_from_tables_without_a_change(sides: tuple[Path, Path]) -> None:
    measure_path(sides[1]).unlink()
    ended = kaudit("diff", *sides, "--timing")
    assert ended.returncode == 2
    assert "--timing: the second table has no times beside it; put its .measure.parquet there, or " in ended.stderr
    assert ended.stderr.endswith("sweep it with --timing (docs/timing.md)\n")
    ended = kaudit("show", sides[1], "--timing")
    assert ended.returncode == 2
    assert "nothing of that was timed; put v2.measure.parquet beside it, or sweep with --timing" in ended.stderr


def test_csv_of_one_cell_is_told_by_its_own_name(sides: tuple[Path, Path]) -> None:
    ended = kaudit("show", sides[0], "--cell", cells(1)[0], "--csv", sides[0].with_suffix(".csv"))
    assert ended.returncode == 2 and ended.stderr.startswith("error: --csv: has columns of its own")


def test_a_summary_says_what_was_not_timed_and_what_a_fallback_can_cost() -> None:
    ids = cells(2)
    timings = timed(1, ids)
    timings[ids[1], "rms_norm"] = Timing(unknown="2 of 30 timed runs launched other kernels")
    lines = list(times(table(ids), timings))
    assert lines[:2] == [
        "times: 5 of 6, of ops and of whole cells",
        "not timed: 2 of 30 timed runs launched other kernels (1)",
    ]
    assert len(lines) == 2  # no op fell back
    fell = Table.of(header(), [Row(ids[0], "attention", ran("eager")), Row(ids[0], "rms_norm", ran("fused"))])
    *_, line = times(fell, timings)
    assert line == f"a fallback costs a step at most 5×: attention on eager, 80% of its device time, in {ids[0]}"
    assert not list(times(fell, {}))


def test_ops_that_a_resumed_sweep_has_without_times_are_told() -> None:
    ids = cells(2)
    assert "not timed: swept without --timing (2)" in list(times(table(ids), timed(1, ids[:1])))
    assert list(times(table(ids), {}, asked=True)) == ["not timed: swept without --timing (4)"]
