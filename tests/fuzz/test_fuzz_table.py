"""Tables from strangers, and files of measures, through each command that reads them: nothing in them is executed."""

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from runs import Ended, fuzzed, kaudit
from texts import HOSTILE, in_a_file, scalars, with_changes, words

GOLDEN = Path(__file__).parents[1] / "golden" / "smoke-cpu.jsonl"
ROWS = 6

FORMATS = ("text", "json", "sarif", "github", "junit", "markdown", "prometheus")
COMMANDS = (
    ["check", "BAD"],
    ["show", "BAD"],
    ["show", "BAD", "--cell", "CELL"],
    ["report", "BAD", "--out", "PAGE"],
    ["report", "GOOD", "BAD", "--across", "--out", "PAGE"],
    ["diff", "BAD", "GOOD"],
    ["merge", "GOOD", "BAD", "--out", "MERGED"],
    *(["diff", "GOOD", "BAD", "--across", "--format", form] for form in FORMATS),
    *(["gate", "GOOD", "BAD", "--across", "--format", form] for form in FORMATS),
)


def _golden() -> list[Any]:
    """Header, and rows of different outcomes."""
    header, *rows = map(json.loads, GOLDEN.read_text("utf-8").splitlines())
    chosen = {json.dumps(row["outcome"], sort_keys=True)[:60]: row for row in rows}
    return [header, *sorted(list(chosen.values())[:ROWS], key=lambda row: (row["cell"], row["op"]))]


def _text(lines: Sequence[Any]) -> str:
    """As a table, with the right count of rows: a wrong one would end each reading at the first check."""
    if isinstance(lines[0], dict) and "rows" in lines[0]:
        lines = [lines[0] | {"rows": len(lines) - 1}, *lines[1:]]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "good.jsonl").write_text(_text(_golden()), "utf-8")
    return folder


def read_by(folder: Path, command: Sequence[str], table: bytes, cell: str = "x") -> Ended:
    (folder / "bad.jsonl").write_bytes(table)
    names = {"BAD": folder / "bad.jsonl", "GOOD": folder / "good.jsonl", "PAGE": folder / "page.html", "CELL": cell}
    names["MERGED"] = folder / "merged.jsonl"
    (folder / "page.html").unlink(missing_ok=True)
    ended = kaudit(*(names.get(word, word) for word in command))
    if ended.code != 2:
        if "PAGE" in command:
            harmless(folder / "page.html")
        if "--format" in command:
            well_formed(command[-1], ended.out)
    return ended


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def harmless(page: Path) -> None:
    """The page has its own scripts and nothing that a table could have put there to run."""
    elements = _Elements()
    elements.feed(page.read_text("utf-8"))
    assert elements.scripts == 3  # data, evidence, and the code
    assert not elements.tags & {"img", "iframe", "object", "embed", "base", "form"}
    assert not {name for name in elements.attributes if name.startswith("on")} | elements.attributes & {"src", "href"}


def well_formed(form: str, out: str) -> None:
    match form:
        case "json" | "sarif":
            json.loads(out)
        case "junit":
            ElementTree.fromstring(out)
        case "prometheus":
            list(text_string_to_metric_families(out))
        case "github":
            assert all(
                re.match(r"::(error|warning|notice|group|endgroup)\b", line)
                for line in out.split("\n")
                if "::" in line[:2]
            )
            assert "::add-mask" not in re.findall(r"^::[\w-]+", out, re.M)


changed = with_changes(_golden())


@given(changed, st.sampled_from(COMMANDS))
@fuzzed(100)
def test_changed_tables(folder: Path, document: Any, command: list[str]) -> None:
    lines = document if isinstance(document, list) and document else [document]
    cells = [row["cell"] for row in lines[1:] if isinstance(row, dict) and isinstance(row.get("cell"), str)]
    read_by(folder, command, in_a_file(_text(lines)), next(iter(cells), "x"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("digits", [10, 19, 40, 5000])
def test_ids_of_huge_numbers(folder: Path, digits: int, command: list[str]) -> None:
    lines = _golden()
    for line in lines[1:]:
        line["cell"] = re.sub(r"/b\d+q", f"/b{'9' * digits}q", line["cell"])
    read_by(folder, command, in_a_file(_text(lines)), lines[1]["cell"])


@given(st.data(), st.sampled_from(COMMANDS))
@fuzzed(40)
def test_harmed_tables(folder: Path, data: st.DataObject, command: list[str]) -> None:
    content = _text(_golden()).encode()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 200)))
    put = data.draw(st.binary(max_size=20) | words.map(in_a_file) | st.just(b"[" * 20_000) | st.just(b"9" * 20_000))
    read_by(folder, command, content[:start] + put + content[end:])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_each_text_of_a_table_hostile(folder: Path, text: str, command: list[str]) -> None:
    """All that a table lets a stranger choose, at once; cells and ops stay, and stay comparable."""
    fixed = {"cell", "op", "type", "source", "numerics", "graph_asked", "graph_got"}

    def spoilt(node: Any, key: str = "") -> Any:
        match node:
            case dict():
                return {name: spoilt(inner, name) for name, inner in node.items()}
            case list():
                return [spoilt(inner) for inner in node]
            case str() if key not in fixed:
                return text.encode("utf-8", "replace").decode()
        return node

    lines = spoilt(_golden())
    lines[0]["schema"] = 1
    ended = read_by(folder, command, in_a_file(_text(lines)), lines[1]["cell"])
    assert ended.code != 2 or command[0] in ("check", "diff", "merge"), ended.words


@given(words, words, words, words)
@fuzzed(20)
def test_what_is_asked_of_a_table(folder: Path, only: str, where: str, columns: str, cell: str) -> None:
    good = folder / "good.jsonl"
    kaudit("show", good, f"--only={only}", f"--where={where}")
    kaudit("show", good, f"--columns={columns}", f"--op={only}")
    kaudit("show", good, f"--where=batch={where}")
    kaudit("show", good, f"--cell={cell}")
    kaudit("explain", "--", cell)


_columns = st.lists(scalars.filter(lambda value: not (isinstance(value, int) and abs(value) >= 2**63)), max_size=4)


@given(st.fixed_dictionaries({"cell": _columns, "op": _columns, "device_us": _columns}))
@fuzzed(20)
def test_odd_measures(folder: Path, columns: dict[str, list[object]]) -> None:
    least = min(map(len, columns.values()))
    try:
        frame = pa.table({name: pa.array(own[:least]) for name, own in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        return  # a mix of types that no Parquet file can have
    pq.write_table(frame, folder / "good.measure.parquet")
    kaudit("report", folder / "good.jsonl", "--out", folder / "page.html")
    harmless(folder / "page.html")


@given(st.data())
@fuzzed(30)
def test_harmed_measures(folder: Path, data: st.DataObject) -> None:
    path = folder / "good.measure.parquet"
    rows = _golden()[1:]
    pd.DataFrame([(row["cell"], row["op"], 1.5) for row in rows], columns=["cell", "op", "device_us"]).to_parquet(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        put = data.draw(st.binary(min_size=1, max_size=8))
        content[start : start + len(put)] = put
    path.write_bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])
    kaudit("report", folder / "good.jsonl", "--out", folder / "page.html")
