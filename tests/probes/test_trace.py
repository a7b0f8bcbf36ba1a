import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaudit_probes.trace import Event, Trace, TraceError, leaves, read, sorted_out

SHARED = Path(__file__).parents[3] / "shared" / "traces"


def parse(events: list[dict[str, Any]]) -> Trace:
    return sorted_out(msgspec.convert(events, list[Event]))


def kernel(correlation: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": 2, "args": {"correlation": correlation, **args}}


def call(name: str, correlation: int, ts: float = 1) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": ts, "dur": 1, "pid": 1, "tid": 1, "args": args}


def test_kernel_facts_are_read() -> None:
    facts = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 1024}
    (activity,) = parse([kernel(7, **facts, **{"graph node id": 3})]).activities
    assert (activity.grid, activity.block, activity.args.registers) == ((4, 2, 1), (128, 1, 1), 40)
    assert (activity.args.shared_memory, activity.args.graph_node, activity.us) == (1024, 3, 2.0)


def test_a_grid_that_inductor_writes_as_text_on_its_op_is_none_of_a_kernel() -> None:
    op = {**kernel(7, grid="grid(8,)"), "cat": "cpu_op"}
    assert [found.grid for found in parse([op]).ops] == [None]


@pytest.mark.parametrize("missing", ["grid", "block", "registers per thread", "shared memory", "graph node id", "args"])
def test_a_field_that_this_torch_does_not_write_is_none_not_an_error(missing: str) -> None:
    event = kernel(7, **{"grid": [1, 1, 1], "block": [1, 1, 1], "registers per thread": 1, "shared memory": 0})
    event["args"].pop(missing, None)
    event.pop(missing, None)
    assert len(parse([event]).activities) == 1


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cudaLaunchCooperativeKernel",
        "cudaGraphLaunch",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
    ],
)
def test_every_way_to_launch_counts_as_a_launch(name: str) -> None:
    assert [found.name for found in parse([call(name, 1)]).launches()] == [name]


@pytest.mark.parametrize("name", ["cudaLaunchHostFunc", "cudaDeviceSynchronize", "cudaStreamIsCapturing", "cudaMalloc"])
def test_calls_that_launch_nothing_do_not_count(name: str) -> None:
    assert not parse([call(name, 1)]).launches()


def test_an_unknown_call_that_a_kernel_names_as_its_origin_is_a_launch() -> None:
    assert [found.name for found in parse([call("cudaNovelty", 9), kernel(9)]).launches()] == ["cudaNovelty"]


def test_copies_of_ranges_on_the_gpu_are_not_kernels() -> None:
    trace = parse([{"ph": "X", "cat": "gpu_user_annotation", "name": "kaudit/x", "ts": 1, "dur": 1, "args": {}}])
    assert not trace.activities
    assert not trace.ranges


def op(name: str, start: float, end: float, thread: str = "1") -> Event:
    return Event("X", "cpu_op", name, start, end - start, tid=thread)


def test_leaves_are_the_innermost_ops_of_each_thread() -> None:
    ops = [op("outer", 0, 10), op("inner", 1, 4), op("leaf", 2, 3), op("later", 5, 6), op("other", 0, 9, "2")]
    assert sorted(leaf.name for leaf in leaves(ops, frozenset())) == ["later", "leaf", "other"]


def test_what_runs_inside_an_atom_is_not_looked_at() -> None:
    ops = [op("flash", 0, 10), op("copy", 1, 4), op("fill", 2, 3), op("later", 11, 12)]
    assert [leaf.name for leaf in leaves(ops, frozenset({"flash"}))] == ["flash", "later"]


@pytest.mark.parametrize("cut", [0, 1, 17, -1])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_short_is_an_error_never_an_empty_trace(tmp_path: Path, cut: int, packed: bool) -> None:
    whole = json.dumps({"traceEvents": [kernel(1)]}).encode()
    path = tmp_path / "trace.json"
    path.write_bytes((gzip.compress(whole) if packed else whole)[:cut])
    with pytest.raises(TraceError, match="not a whole Chrome trace"):
        read(path)


@pytest.mark.parametrize("text", ["{}", '{"traceEvents": 3}', "3", '"x"'])
def test_json_that_is_no_trace_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="not a Chrome trace"):
        read(path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared real traces are not here")
class TestRealTraces:
    def test_each_is_read(self) -> None:
        paths = [path for path in SHARED.iterdir() if ".json" in path.suffixes and "execution_details" not in path.name]
        assert len(paths) > 10
        for path in paths:
            read(path)

    def test_a_kernel_whose_launch_precedes_the_window_is_an_orphan(self) -> None:
        trace = read(SHARED / "tracelens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
        called = {found.correlation for found in trace.calls}
        kernels = [activity for activity in trace.activities if activity.grid]
        assert len(kernels) == 1465
        assert sum(activity.correlation not in called for activity in kernels) == 436

    def test_the_kernels_of_a_graph_share_the_id_of_its_launch(self) -> None:
        trace = read(SHARED / "tracelens__inference__vllm_decode_full__graph_execution.json.gz")
        (launch,) = [found for found in trace.launches() if found.is_graph_launch]
        assert sum(activity.correlation == launch.correlation for activity in trace.activities) >= 421
