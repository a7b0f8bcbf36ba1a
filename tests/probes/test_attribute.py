"""Health checks, proven by planted loss: what cannot be vouched for has no kernels."""

from typing import Any

import msgspec
import pytest

from kaudit_probes.attribute import Healthy, Unhealthy, agreed, attribute
from kaudit_probes.trace import Event, sorted_out

SENTINELS = ("first", "last")


def span(name: str, start: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": 9, "pid": 1, "tid": 1, "args": {}}


def launch(correlation: int, ts: float, name: str = "cudaLaunchKernel", dur: float = 1) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1}
    return {**event, "args": {"correlation": correlation}}


def kernel(correlation: int, ts: float, name: str = "softmax_warp_forward") -> dict[str, Any]:
    args = {"correlation": correlation, "grid": [8, 1, 1], "block": [128, 1, 1]}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": 2.5, "args": args}


def session() -> list[dict[str, Any]]:
    """Sentinel, op `a` with two launches of one kernel and a copy, op `b` with a graph of two kernels, sentinel."""
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 35, "dur": 1, "args": {"correlation": 4}}
    return [
        *(span(name, start) for name, start in [("first", 0), ("a", 10), ("b", 20), ("last", 30)]),
        launch(1, 1), kernel(1, 31),
        launch(2, 11), kernel(2, 32),
        launch(3, 12), kernel(3, 33),
        launch(4, 13, "cudaMemcpyAsync"), copy,
        launch(5, 21, "cudaGraphLaunch"), kernel(5, 36, "flash_prefill_kernel"), kernel(5, 37, "never heard of"),
        launch(6, 31), kernel(6, 38),
    ]  # fmt: skip


def verdicts(events: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(attribute(sorted_out(msgspec.convert(events, list[Event])), ["a", "b"], SENTINELS, on_gpu=True))


def test_kernels_belong_to_the_range_that_holds_their_launch() -> None:
    found = verdicts(session())
    assert [(kernel.name, kernel.count, kernel.family) for kernel in found["a"].kernels] == [
        ("softmax_warp_forward", 2, "unfused_softmax"),
        ("Memcpy DtoD", 1, "copy"),
    ]
    assert found["a"].device_us == 6.0
    assert [(kernel.name, kernel.graph, kernel.family) for kernel in found["b"].kernels] == [
        ("flash_prefill_kernel", True, "reference_prefill"),
        ("never heard of", True, "unclassified"),
    ]


def without(events: list[dict[str, Any]], category: str, correlation: int) -> list[dict[str, Any]]:
    return [
        event
        for event in events
        if not (event["cat"] == category and event["args"].get("correlation") == correlation)
    ]  # fmt: skip


def recorrelated(events: list[dict[str, Any]], category: str, old: int, new: int) -> list[dict[str, Any]]:
    return [
        {**event, "args": {**event["args"], "correlation": new}}
        if event["cat"] == category and event["args"].get("correlation") == old
        else event
        for event in events
    ]


@pytest.mark.parametrize(
    ("loss", "unhealthy", "why"),
    [
        (without(session(), "kernel", 1), {"a", "b"}, "a sentinel kernel of the session is not seen"),
        (without(session(), "kernel", 6), {"a", "b"}, "a sentinel kernel of the session is not seen"),
        (without(session(), "kernel", 3), {"a"}, "1 of 3 launches have no device activity"),
        (without(session(), "gpu_memcpy", 4), {"a"}, "1 of 3 launches have no device activity"),
        (without(session(), "kernel", 5), {"b"}, "1 of 1 launches have no device activity"),
        (without(session(), "cuda_runtime", 3), {"a", "b"}, "1 device activities of the session have no launch call"),
        (recorrelated(session(), "kernel", 3, 2), {"a"}, "one cudaLaunchKernel carries 2 device activities"),
        (recorrelated(session(), "cuda_runtime", 3, 2), {"a", "b"}, "have no launch call"),
        ([event for event in session() if event["cat"] != "kernel"], {"a", "b"}, "sentinel"),
        ([event for event in session() if event["name"] != "a"], {"a"}, "stands 0 times"),
        ([], {"a", "b"}, "sentinel"),
    ],
    ids=["first", "last", "middle", "copy", "graph", "call", "merged-kernels", "merged-calls", "all", "range", "empty"],
)
def test_planted_loss_is_unhealthy_and_only_where_it_hit(loss: Any, unhealthy: set[str], why: str) -> None:
    found = verdicts(loss)
    assert {name for name, verdict in found.items() if isinstance(verdict, Unhealthy)} == unhealthy
    assert all(why in verdict.why for verdict in found.values() if isinstance(verdict, Unhealthy))


def test_two_kernels_of_one_plain_launch_are_not_believed() -> None:
    found = verdicts([*recorrelated(session(), "kernel", 3, 2), kernel(3, 40)])
    assert found["a"] == Unhealthy("one cudaLaunchKernel carries 2 device activities")


def test_two_launches_with_one_correlation_are_not_believed() -> None:
    found = verdicts([*session(), launch(2, 15)])
    assert found["a"] == Unhealthy("two launches carry one correlation id")


def test_a_driver_call_inside_the_runtime_call_of_its_correlation_is_the_same_launch() -> None:
    inner = {**launch(2, 11.2, "cuLaunchKernelEx", 0.5), "cat": "cuda_driver"}
    assert verdicts([*session(), inner])["a"] == verdicts(session())["a"]


@pytest.mark.parametrize("at", [11.2, 19.5], ids=["inside an op", "between ops"])
def test_whose_the_launch_of_another_thread_is_cannot_be_told(at: float) -> None:
    found = verdicts([*session(), {**launch(9, at), "tid": 2}, kernel(9, 32.5)])
    assert set(map(repr, found.values())) == {
        repr(Unhealthy("1 launches of the session are another thread's: it cannot be told for which op they are"))
    }


def test_a_range_in_which_nothing_was_launched_is_no_op_that_ran() -> None:
    events = [event for event in session() if event["args"].get("correlation") not in (2, 3, 4)]
    empty = verdicts(events)["a"]
    assert empty == Healthy((), 0.0)
    assert agreed([empty, empty], 2) == Unhealthy("nothing was launched in its range")
