"""The report page without a browser: what is in the file, and that nothing in it can run but its own script."""

import base64
import hashlib
import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from tables_for_tests import CELL, PATHS, announced, asked, header, ran, table, tables
from test_cli import kaudit

from kaudit.cell import Cell
from kaudit.change import KINDS
from kaudit.diff import changes
from kaudit.errors import UserError
from kaudit.measure import measure_path, read_times
from kaudit.observation import Crashed, Kernel, Row
from kaudit.policy import DEFAULT_FAIL_ON
from kaudit.report.html import Timed, of_one_table, of_two_tables
from kaudit.report.judged import QUIET
from kaudit.report.lines import Times
from kaudit.report.verdicts import LOOKS, OF_ONE, OF_TWO, OWN
from kaudit.table import Table, write

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>{{ 7*7 }}\u2028"
OTHER = CELL.replace("h32x8x128", "h8x8x64")


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of each script and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.raw.append((self.tags[-1][1].get("id") or self.cdata_elem, data))


def one(table: Table, times: Times | None = None) -> str:
    return of_one_table(Timed("one.jsonl", table, times or {}))


def two(before: Table, after: Table, times: tuple[Times, Times] = ({}, {})) -> str:
    sides = Timed("old.jsonl", before, times[0]), Timed("new.jsonl", after, times[1])
    return of_two_tables(*sides, list(changes(before, after)), [], across=False)


def part(page: str, name: str = "data") -> dict:
    (text,) = [text for of, text in Elements(page).raw if of == name]
    return json.loads(text)


def told(page: str) -> list[tuple[str, str, list[str]]]:
    """Cell, op and verdicts of each row that counts."""
    data = part(page)
    columns = [[tokens[code] for code in codes] for tokens, codes in zip(data["tokens"], data["cells"], strict=True)]
    ids = ["/".join(parts) for parts in zip(*columns, strict=True)]
    names = [verdict["name"] for verdict in data["verdicts"]]
    rows = zip(*(data["rows"][column] for column in ("cell", "op", "told")), strict=True)
    return [
        (ids[cell], data["ops"][op], [names[verdict] for verdict, _ in data["tellings"][telling]])
        for cell, op, telling in rows
        if telling >= 0
    ]


def test_the_policy_admits_the_page_s_own_style_and_script_and_nothing_else() -> None:
    elements = Elements(one(table(ran())))
    policy = next(attributes["content"] for tag, attributes in elements.tags if "http-equiv" in attributes)
    for name in ("style", "script"):
        (text,) = [text for of, text in elements.raw if of == name]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    attributes = {name for _, attributes in elements.tags for name in attributes}
    assert not {name for name in attributes if name.startswith("on")} | attributes & {"style", "src", "href"}


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    assert not re.search(r"https?:|url\(|@import|\bfetch\(|\beval\(|innerHTML|\bimport\b", one(table(ran())))


def test_what_a_stranger_s_table_holds_stays_text() -> None:
    paths = {"attention": ("flash", HOSTILE)}
    kernel = Kernel(HOSTILE, HOSTILE, HOSTILE, 1, arch=HOSTILE)
    hostile = ran(HOSTILE, announced("flash", HOSTILE), asked(HOSTILE), kernels=(kernel,), claimed=HOSTILE)
    spoilt = header(paths, engine=HOSTILE, versions={HOSTILE: HOSTILE}, environment={HOSTILE: HOSTILE})
    nasty = Table.of(spoilt, [Row(CELL, "attention", hostile), Row(OTHER, "*", Crashed(HOSTILE))])
    calm = Elements(one(Table.of(header(paths), nasty.rows.values())))
    for page in (one(nasty), of_one_table(Timed(HOSTILE, nasty, {})), two(table(ran()), nasty)):
        elements = Elements(page)
        assert {tag for tag, _ in elements.tags} == {tag for tag, _ in calm.tags}
        assert [name for name, _ in elements.raw] == ["style", "data", "evidence", "script"]
        assert HOSTILE in {raw for _, raw in part(page, "evidence")["names"]}
        assert "49" not in page.partition("<main>")[0]


def test_a_table_comes_back_out_of_its_page() -> None:
    seen = Table.of(
        header(),
        [
            Row(CELL, "attention", ran("eager", asked("flash"), claimed="split")),
            Row(CELL, "rms_norm", ran("fused")),
            Row(OTHER, "attention", ran("split", announced("flash"))),
        ],
    )
    page = one(seen, {(CELL, "attention"): 12.34567})
    assert told(page) == [
        (CELL, "attention", ["contradiction", "silent fallback"]),
        (CELL, "rms_norm", []),
        (OTHER, "attention", ["announced fallback"]),
    ]
    data, evidence = part(page), part(page, "evidence")
    assert data["paths"] == [{op: list(paths) for op, paths in PATHS.items()}]
    assert data["rows"]["times"] == [[12.35, None, None]]
    assert [data["frames"][frame][1:3] for frame in data["frame"]] == [["eager", "split"], ["fused"] * 2, ["split"] * 2]
    assert data["launches"] == [1, 1, 1]
    assert evidence["outcomes"][0] == [[0], [0]]
    assert evidence["rejections"][0] == ["flash", "asked", ["head_dim=96, needs one of 64, 128"]]
    assert evidence["kernels"][0] == [0, 1, None, 0]
    assert evidence["names"][evidence["functions"][0][0]] == ["eager_kernel", "eager_kernel"]


def test_each_axis_says_of_a_cell_what_the_cell_does() -> None:
    cells = (CELL, OTHER, CELL.replace("paged16", "paged8").replace("plain", "sinks+softcap"))
    data = part(one(Table.of(header(), [Row(cell, "attention", ran()) for cell in cells])))
    ids = sorted(cells)
    varying = {name for name in Cell.parse(CELL).axes() if len({Cell.parse(cell).axes()[name] for cell in cells}) > 1}
    assert {axis["name"] for axis in data["axes"]} == varying
    for axis in data["axes"]:
        codes = data["cells"][axis["place"]]
        found = [axis["values"][axis["codes"][code]] for code in codes]
        assert found == [Cell.parse(cell).axes()[axis["name"]] for cell in ids]


def test_two_tables_are_told_as_diff_tells_them() -> None:
    rows = Row(CELL, "attention", ran()), Row(CELL, "rms_norm", ran("fused")), Row(OTHER, "attention", ran())
    before = Table.of(header(), rows)
    after = Table.of(header(), [Row(CELL, "*", Crashed("SIGSEGV")), Row(OTHER, "attention", ran("eager"))])
    page = two(before, after, ({(OTHER, "attention"): 2.0}, {(OTHER, "attention"): 4.0}))
    assert told(page) == [(CELL, "*", ["crashed"]), (OTHER, "attention", ["silent fallback"])]
    data = part(page)
    assert data["sides"] == ["before", "after"]
    assert data["rows"]["outcomes"] == [[-1, 0, 1, 0], [2, -1, -1, 3]]
    assert data["rows"]["times"] == [[None, None, None, 2.0], [None, None, None, 4.0]]
    (sentence,) = [sentence for telling in data["tellings"] for verdict, sentence in telling if verdict == 4]
    assert sentence == "attention left flash for eager without a word"
    assert "crashed: 1 (the cell ended in a signal, a CUDA error or an exception)" in page


def test_tables_that_agree_say_so() -> None:
    page = two(table(ran()), table(ran()))
    assert "nothing changed" in page
    assert told(page) == [(CELL, "attention", [])]


@given(tables(), tables())
@settings(max_examples=30)
def test_every_table_and_every_two_make_a_page(before: Table, after: Table) -> None:
    assert len(told(one(before))) == len(before.rows)
    found = {(cell, op): verdicts for cell, op, verdicts in told(two(before, after))}
    for change in changes(before, after):
        assert change.kind.replace("_", " ") in found[change.cell, change.op]


def test_every_verdict_has_its_looks_and_no_two_of_a_page_the_same_symbol() -> None:
    assert set(LOOKS) == {*OF_ONE, *OF_TWO} >= set(OWN)
    for names in (OF_ONE, OF_TWO):
        assert len({LOOKS[name][0] for name in names}) == len(names)


def test_the_tones_say_what_the_gate_says() -> None:
    tones = {kind: LOOKS[kind][1] for kind in KINDS}
    assert {kind for kind, tone in tones.items() if tone == "bad"} == set(DEFAULT_FAIL_ON)
    assert {kind for kind, tone in tones.items() if tone in ("note", "good")} == set(QUIET)


def test_the_command_writes_the_page_where_it_is_told_to(tmp_path: Path) -> None:
    before, after, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "page.html"
    write(before, table(ran("flash")))
    write(after, table(ran("eager", announced("flash"))))
    pd.DataFrame({"cell": [CELL], "op": ["attention"], "device_us": [7.5]}).to_parquet(measure_path(before))
    assert kaudit("report", before).stdout == f"{tmp_path / 'a.html'}\n"
    assert part((tmp_path / "a.html").read_text())["rows"]["times"] == [[7.5]]
    assert kaudit("report", before, after).stdout == f"{tmp_path / 'a-to-b.html'}\n"
    assert kaudit("report", before, after, "--out", out).returncode == 0
    # One table without times: nothing to hold the other's against.
    assert part(out.read_text())["rows"]["times"] == []
    missing = kaudit("report", before, "--out", tmp_path / "none" / "page.html")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_a_pipe_named_as_the_page_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path, pipe = tmp_path / "a.jsonl", tmp_path / "pipe"
    write(path, table(ran()))
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        try:
            assert kaudit("report", path, "--out", pipe).returncode == 0
            assert pipe.is_fifo()
            assert reader.communicate(timeout=30)[0].startswith(b"<!doctype html>")
        finally:
            reader.kill()


def test_what_is_no_measure_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert read_times(path) == {}
    measure_path(path).write_bytes(b"PAR1 or so")
    with pytest.raises(UserError, match="not a measure file"):
        read_times(path)


def test_an_id_that_is_none_is_told() -> None:
    for spoilt in (CELL.replace("b8", "b08"), "a/b"):
        with pytest.raises(UserError, match="a table holds what is no cell"):
            one(Table.of(header(), [Row(CELL, "attention", ran()), Row(spoilt, "attention", ran())]))
