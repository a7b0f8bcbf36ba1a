"""Traces of strangers: read to something, or TraceError; and what is read is attributed without a crash."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import fuzzed, limited
from texts import in_a_file, values, with_changes, words

from kaudit_probes import trace
from kaudit_probes.attribute import Verdict, attribute
from kaudit_probes.trace import TraceError, read

SENTINELS = ("first", "last")
RANGES = ("kaudit/a", "kaudit/b")


def _event(category: str, name: str, start: float, length: float, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 2, "ts": start, "dur": length, "args": args}


def _trace() -> dict[str, Any]:
    """Two ranges between sentinels, each with an op, a launch and its kernel."""
    events = []
    for number, name in enumerate((SENTINELS[0], *RANGES, SENTINELS[1])):
        at = 100.0 * number
        shape = {"grid": [4, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 1024}
        events += [
            _event("user_annotation", name, at, 50),
            _event("cpu_op", "aten::mm", at + 1, 9),
            _event("cuda_runtime", "cudaLaunchKernel", at + 2, 3, correlation=number + 1),
            _event("kernel", f"gemm_{number}", at + 20, 5, correlation=number + 1, **shape),
            _event("gpu_user_annotation", name, at, 50),
        ]
    return {"schemaVersion": 1, "traceEvents": events}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


def verdicts(path: Path) -> list[dict[str, Verdict]]:
    """On a GPU and on a CPU; nothing where it is no trace."""
    with limited():
        try:
            found = read(path)
        except TraceError as error:
            assert str(error).startswith(str(path))
            return []
        return [attribute(found, RANGES, SENTINELS, on_gpu) for on_gpu in (True, False)]


def test_the_unharmed_one_is_healthy(folder: Path) -> None:
    (folder / "t.json").write_text(json.dumps(_trace()))
    assert all(
        type(found).__name__ == "Healthy" for by_range in verdicts(folder / "t.json") for found in by_range.values()
    )


@given(with_changes(_trace()), st.booleans())
@fuzzed(60)
def test_changed_traces(folder: Path, document: Any, packed: bool) -> None:
    content = in_a_file(json.dumps(document))
    (folder / "t.json").write_bytes(gzip.compress(content, 1) if packed else content)
    verdicts(folder / "t.json")


_CATEGORIES = ("kernel", "gpu_memcpy", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation")


@given(
    st.lists(
        st.fixed_dictionaries(
            {"ph": st.just("X"), "cat": st.sampled_from(_CATEGORIES)},
            optional=dict.fromkeys(("name", "ts", "dur", "pid", "tid", "args"), values),
        ),
        max_size=4,
    )
)
@fuzzed(30)
def test_events_of_odd_fields(folder: Path, events: list[Any]) -> None:
    (folder / "t.json").write_bytes(in_a_file(json.dumps(events)))
    verdicts(folder / "t.json")


@given(st.data())
@fuzzed(30)
def test_harmed_files(folder: Path, data: st.DataObject) -> None:
    content = json.dumps(_trace()).encode()
    content = gzip.compress(content) if data.draw(st.booleans()) else content
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    put = data.draw(st.binary(max_size=20) | words.map(in_a_file))
    (folder / "t.json").write_bytes(content[:start] + put + content[end:])
    verdicts(folder / "t.json")


BOMBS = {
    "deep": b"[" * 200_000,
    "a long number": b'[{"ph":"X","cat":"kernel","ts":' + b"9" * 100_000 + b"}]",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(folder: Path, bomb: str) -> None:
    (folder / "t.json").write_bytes(BOMBS[bomb])
    assert verdicts(folder / "t.json") == []


def test_what_unpacks_to_more_than_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_UNPACKED", 1 << 20)
    (folder / "t.json").write_bytes(gzip.compress(b"0" * (64 << 20), 1))
    with pytest.raises(TraceError, match="more than 1 MiB"):
        read(folder / "t.json")
