"""Journals with anything in them: resumed from what is whole, or refused in a line that names the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import fuzzed, limited
from texts import in_a_file, with_changes, words

from kaudit.errors import UserError
from kaudit.journal import Entry, journal
from kaudit.observation import WHOLE_CELL, Crashed, Kernel, Ran, Rejection, Row, Said
from kaudit.table import SCHEMA, Device, Header, Stamp, Table, encoded
from kaudit.wire import Measure

STAMP = Stamp("fake", "1", Device("NVIDIA H200", "sm_90", 132, "580.1"), {"torch": "2.8"}, {}, "m.yaml", "d1")
HEADER = Header(SCHEMA, "0.1.0", STAMP, {"attention": ("fast", "slow")})
_RAN = Ran(
    "slow", (Kernel("k", "gemm", "gemm", 1, grid=(1, 2, 3)),), "fast", (Rejection("fast", "asked", (Said("x"),)),)
)


def _lines(folder: Path) -> list[Any]:
    """Of a journal as it is written: a header and two cells."""
    path = folder / "whole.partial"
    entries = [
        Entry("a", (Row("a", "attention", _RAN), Row("a", "o_proj", _RAN)), (Measure("a", "attention", 1.5),)),
        Entry("b", (Row("b", WHOLE_CELL, Crashed("SIGSEGV")),)),
    ]
    with journal(path, HEADER, resume=False) as kept:
        kept.append(entries)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def resumed(path: Path) -> None:
    try:
        with limited(), journal(path, HEADER, resume=True) as kept:
            entries = list(kept.entries())
            assert kept.done == {(entry.run, entry.cell) for entry in entries}
    except UserError as error:
        assert all(fault.startswith(str(path)) for fault in error.faults)
        return
    encoded(Table.of(HEADER, [row for entry in entries for row in entry.rows]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journals")


@pytest.fixture(scope="module")
def lines(folder: Path) -> list[Any]:
    return _lines(folder)


@given(st.data())
@fuzzed(40)
def test_changed_journals(folder: Path, lines: list[Any], data: st.DataObject) -> None:
    document = data.draw(with_changes(lines))
    whole = document if isinstance(document, list) else [document]
    path = folder / "t.partial"
    path.write_bytes(b"".join(in_a_file(json.dumps(line)) + b"\n" for line in whole))
    resumed(path)


@given(st.data())
@fuzzed(30)
def test_harmed_journals(folder: Path, lines: list[Any], data: st.DataObject) -> None:
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    put = data.draw(st.binary(max_size=20) | words.map(in_a_file) | st.just(b"[" * 50_000) | st.just(b"\0" * 512))
    path = folder / "t.partial"
    path.write_bytes(content[:start] + put + content[end:])
    resumed(path)
