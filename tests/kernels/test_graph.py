"""A step as a CUDA graph: when it is one, that padding changes nothing, and, on a GPU, that a replay is the step."""

import logging
from typing import Any

import pytest
import torch
from kernel_problems import BASE, SMALL, but, chunk, decode, prefill, title
from torch import Tensor

from kaudit_kernels import graph
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.engine import Step, device_facts
from kaudit_kernels.problem import Problem

pytestmark = pytest.mark.usefixtures("poisoned_outputs")

GRAPH = but(BASE, features="cuda_graph")

REPLAYS = ", ".join(kernel.name for kernel in CATALOGUE["attention"] if kernel.replays)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"batch": 64}, []),
        ({"features": "cuda_graph prefix_share grammar softcap sinks top_k top_p", "skew": True}, []),
        ({"features": "cuda_graph cancelled preempted stale_branch"}, []),
        ({"batch": 65}, ["batch=65, needs at most 64"]),
        ({"sm": 0}, ["sm=0, needs at least 1"]),
        ({"q_len": 4}, ["q_len=4, needs at most 1"]),
        ({"dtype": "fp32"}, [f"attention=eager, needs one of {REPLAYS}"]),
        ({"head_dim": 320}, [f"attention=eager, needs one of {REPLAYS}"]),
        (
            {"dtype": "fp32", "batch": 65},
            ["batch=65, needs at most 64"],
        ),  # of what meets all else is asked what serves it
        (prefill(1), ["phase=prefill, needs decode"]),
        (chunk(16, 64, batch=100), ["phase=chunked_prefill", "q_len=16", "batch=100"]),
        ({"mask": "custom"}, ["mask=custom, needs one of none, causal, window"]),
        ({"features": "cuda_graph idle preempted"}, ["features=idle, "]),
        ({"features": "cuda_graph vacant sliced"}, ["features=sliced+vacant, "]),
        (
            {"features": "cuda_graph speculative_tree", "mask": "tree", "q_len": 4},
            ["q_len=4", "mask=tree", "features=speculative_tree, "],
        ),
    ],
    ids=str,
)
def test_what_cannot_be_captured_has_its_reasons(changes: dict[str, Any], reasons: list[str]) -> None:
    found = [str(why) for why in graph.against(but(GRAPH, **changes))]
    assert len(found) == len(reasons)
    assert all(why.startswith(reason) for why, reason in zip(found, reasons, strict=True))


def test_a_batch_takes_the_next_bucket() -> None:
    assert [graph.bucket(size) for size in (1, 2, 3, 4, 5, 8, 9, 33, 63, 64)] == [1, 2, 4, 4, 8, 8, 16, 64, 64, 64]
    for bucket in graph.BUCKETS:
        assert graph.bucket(bucket) == bucket
    with pytest.raises(ValueError, match="empty"):
        graph.bucket(graph.BUCKETS[-1] + 1)


def test_what_is_launched_is_filled_up_only_where_it_is_captured() -> None:
    assert graph.launched(but(GRAPH, batch=5)) == but(GRAPH, batch=8, padding=3, graphed=True)
    assert graph.launched(but(GRAPH, batch=8)) == but(GRAPH, batch=8, graphed=True)
    for problem in (but(GRAPH, batch=65), but(GRAPH, dtype="fp32"), but(BASE, batch=5)):
        assert graph.launched(problem) == problem


def test_padding_is_told_from_requests() -> None:
    padded = but(GRAPH, batch=8, padding=3, skew=True, kv_len=1000)
    assert padded.kv_lens == (*but(GRAPH, batch=5, skew=True, kv_len=1000).kv_lens, 1, 1, 1)
    assert padded.q_lens == (1,) * 8


PADDED: list[dict[str, Any]] = [
    decode(33, page_size=16, features="grammar top_k"),
    decode(40, page_size=8, features="prefix_share top_p", skew=True, rope="interleaved"),
    decode(33, kv_layout="ragged", skew=True, mask="none"),
    decode(40, kv_layout="contiguous", kv_dtype="int8", rope="none", features="sinks softcap"),
    decode(17, page_size=16, kv_dtype="fp8_e4m3", mask="window", window=5),
    decode(1, page_size=16),
    decode(40, page_size=8, features="prefix_share preempted"),
    decode(32, page_size=16, features="cancelled stale_branch", kv_dtype="int8"),
]


@pytest.mark.parametrize("changes", PADDED, ids=title)
def test_a_batch_that_is_filled_up_gives_its_requests_the_same(changes: dict[str, Any]) -> None:
    problem = but(SMALL, batch=5, **changes)
    alone, padded = Step(problem, "cpu"), Step(problem, "cpu")
    padded.fill_up(8)
    assert padded.launched.problem == but(problem, batch=8, padding=3, graphed=True)
    alone.run()
    padded.run()
    for op, wanted in alone.outputs.items():
        torch.testing.assert_close(padded.outputs[op], wanted, rtol=1e-6, atol=1e-6)
    for name in ("k", "v"):
        before, after = (getattr(step.inputs.cache, name) for step in (alone, padded))
        assert len(after) == len(before) + (problem.page_size or 1)
        wanted, scratch = before.view(torch.uint8), after.view(torch.uint8)
        assert torch.equal(scratch[: len(wanted)], wanted)  # nothing of a request, and nothing of nobody's
        assert not scratch[len(wanted) :].any()


@pytest.mark.parametrize("changes", PADDED, ids=title)
def test_padding_brings_no_number_that_is_none(changes: dict[str, Any]) -> None:
    step = Step(but(SMALL, batch=5, **changes), "cpu")
    step.fill_up(8)
    seen: list[Tensor] = []
    step._real = lambda outputs: seen.extend(outputs.values()) or outputs  # type: ignore[method-assign,func-returns-value]
    step.run()
    assert len(seen) >= 10
    for output in seen:
        assert not output.float().isnan().any()


def test_a_full_bucket_moves_nothing() -> None:
    step = Step(but(SMALL, batch=4, features="cuda_graph"), "cpu")
    step.fill_up(4)
    assert step.launched.cache is step.inputs.cache
    assert step.launched.x is step.inputs.x


def test_without_a_gpu_the_step_says_so_and_runs(caplog: pytest.LogCaptureFixture) -> None:
    step = Step(but(SMALL, features="cuda_graph", kv_len=5), "cpu")
    with pytest.raises(ValueError, match="runs before it is captured"):
        step.capture()
    with caplog.at_level(logging.INFO, "kaudit_kernels.dispatch"):
        step.run()
    assert not step.capturable
    assert caplog.messages[0] == "step: launched op by op, not as a CUDA graph (sm=0, needs at least 1)"
    assert step.outputs["sample"].shape == (2,)
    with pytest.raises(ValueError, match="captured before it is replayed"):
        step.replay()


def test_a_step_that_was_not_asked_to_be_a_graph_says_nothing_of_one() -> None:
    step = Step(but(SMALL, kv_len=5), "cpu")
    assert (step.capturable, step.ungraphed) == (False, ())


ON_GPU: list[dict[str, Any]] = [
    decode(4096, batch=8),
    decode(4096, batch=5),
    decode(1000, batch=33, features="grammar top_k top_p", skew=True),
    decode(300, batch=3, page_size=8, kv_dtype="fp8_e4m3", features="sinks softcap"),
    decode(300, batch=2, page_size=16, kv_dtype="int8", head_dim=256),
    decode(777, batch=7, kv_layout="ragged", mask="window", window=100),
    decode(512, batch=1, kv_layout="contiguous", rope="interleaved", rope_scaling="yarn", rope_offset=131071),
    decode(4096, batch=6, features="prefix_share"),
    decode(2304, batch=33, features="prefix_share preempted", kv_dtype="fp8_e4m3"),
    decode(112, batch=3, features="stale_branch", kv_dtype="fp8_e4m3"),
    decode(300, batch=5, features="cancelled preempted", skew=True),
    decode(129, batch=3, features="preempted", dtype="fp16"),
    decode(129, batch=5, dtype="fp16", kv_dtype="fp8_e5m2"),
    decode(65, batch=64, features="top_p"),
]


def _on_gpu(changes: dict[str, Any]) -> Problem:
    sm, sm_count = device_facts("cuda")
    features = f"cuda_graph {changes.get('features', '')}".strip()
    return but(BASE, **changes | {"features": features}, sm=sm, sm_count=sm_count)


def _captured(problem: Problem) -> Step:
    step = Step(problem, "cuda")
    step.run()
    step.capture()
    return step


@pytest.mark.gpu
@pytest.mark.parametrize("changes", ON_GPU, ids=title)
def test_a_replay_gives_what_the_step_gives(changes: dict[str, Any]) -> None:
    step = _captured(_on_gpu(changes))
    step.run()
    eager = {op: output.clone() for op, output in step.outputs.items()}
    assert step.captured is not None
    for output in step.captured.outputs.values():
        output.fill_(torch.nan if output.is_floating_point() else -1)
    for stored in (step.inputs.cache.k, step.inputs.cache.v):
        stored.view(torch.uint8)[step.inputs.cache.slots] = 0x7F  # the new tokens' K and V have to be written again
    for _ in range(2):
        step.replay()
        torch.cuda.synchronize()
        for op, wanted in eager.items():
            assert torch.equal(step.outputs[op], wanted), op
    assert step.captured.replays == 2
    assert step.captured.pool_bytes > 0


@pytest.mark.gpu
def test_a_replay_reads_what_its_inputs_hold_now() -> None:
    step = _captured(_on_gpu(decode(300, batch=3)))
    step.replay()
    before = step.outputs["down_proj"].clone()
    step.launched.x[:3].mul_(-1)
    step.replay()
    again = step.outputs["down_proj"].clone()
    step.run()
    assert not torch.equal(before, again)
    assert torch.equal(step.outputs["down_proj"], again)


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [*ON_GPU[1:4], *ON_GPU[7:11]], ids=title)
def test_padding_changes_nothing_on_a_gpu_either(changes: dict[str, Any]) -> None:
    """Up to the rounding of products of another height: cuBLAS may cut a sum differently."""
    problem = _on_gpu(changes)
    padded, alone = _captured(problem), Step(but(problem, features=changes.get("features", "")), "cuda")
    padded.replay()
    alone.run()
    for op in ("attention", "down_proj"):
        wanted, found = alone.outputs[op].float(), padded.outputs[op].float()
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05 * wanted.abs().max().item())


@pytest.mark.gpu
def test_a_sweep_of_graphs_gives_each_op_its_kernels() -> None:
    from kaudit.cell import Cell
    from kaudit.observation import Ran
    from kaudit_probes.capture import Capture
    from kaudit_probes.engines.reference import ReferenceEngine
    from kaudit_probes.observe import Observer

    cells = [
        f"decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/{features}/b{batch}q1k2048"
        for features in ("cuda_graph", "cuda_graph+grammar+top_k", "plain")
        for batch in (5, 8, 65)
    ]
    observer = Observer(ReferenceEngine("cuda"), Capture("cuda"), lambda _: None, numerics=True)
    found = observer.observe([Cell.parse(cell) for cell in cells])
    assert found.redo == {}
    rows = {(row.cell, row.op): row.outcome for row in found.rows}
    used = {measure.cell: measure.graph for measure in found.measures}
    for cell in cells:
        ran = {op: outcome for (of, op), outcome in rows.items() if of == cell and isinstance(outcome, Ran)}
        assert {"rms_norm", "attention", "down_proj", "sample"} <= ran.keys()
        captured = "cuda_graph" in cell and "b65" not in cell
        for op, outcome in ran.items():
            assert outcome.graph_got == ("full" if captured else "eager"), (cell, op)
            assert outcome.path == outcome.claimed, (cell, op)
            assert outcome.numerics == "ok", (cell, op)
            assert [str(why) for why in outcome.ungraphed] == (
                ["batch=65, needs at most 64"] if "cuda_graph" in cell and not captured else []
            )
        graph_use = used[cell]
        assert (graph_use is not None) == captured
        if graph_use is not None:
            assert graph_use.nodes == sum(outcome.launches for outcome in ran.values())
            assert (graph_use.batch, graph_use.padding) == (8, 3 if "b5q" in cell else 0)
            assert graph_use.pool_bytes
