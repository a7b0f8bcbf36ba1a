"""Pages under a captured step: a prefix that its requests share and its padding does not, and tables that move."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernel_problems import BASE, SMALL, but, decode, title
from torch import Tensor

from kaudit.cell import Cell
from kaudit_kernels import eager, eager_attention, graph
from kaudit_kernels.cache import Cache, read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.engine import Step
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.triton.launch_decode import cascade_decode
from kaudit_probes.engines.reference import ReferenceEngine
from kaudit_probes.numerics import check

pytestmark = pytest.mark.usefixtures("poisoned_outputs")

TINY = but(BASE, dtype="fp16", q_heads=4, kv_heads=2, head_dim=64, batch=5)

SHARING: list[dict[str, Any]] = [
    decode(700, features="prefix_share", q_heads=6),  # 15 rows of the prefix's product are somebody's, of 24
    decode(3, features="prefix_share", page_size=1),  # one key is shared: as long as a request that is padding
    decode(700, features="prefix_share sinks softcap", skew=True, kv_dtype="fp8_e4m3"),
    decode(600, features="prefix_share", mask="none", kv_dtype="int8", batch=3),
]


@pytest.mark.parametrize("changes", SHARING, ids=title)
def test_a_cascade_is_right_beside_requests_that_do_not_share(changes: dict[str, Any], device: str) -> None:
    pytest.importorskip("triton")
    inputs = graph.filled_up(make_inputs(but(TINY, **changes), device, seed=0), 8)
    problem = inputs.problem
    assert problem.shared_prefix
    assert problem.padding in (3, 5)
    qkv = torch.randn(8, problem.qkv_width, generator=torch.Generator(device).manual_seed(1), device=device)
    q = eager.rope_kv_write(qkv.to(inputs.x.dtype), inputs)
    found, wanted = cascade_decode(q, inputs), eager_attention.attention(q, inputs)  # of padding, too
    torch.testing.assert_close(found, wanted, rtol=2**-9, atol=2**-10 * wanted.abs().max().item())


def test_what_requests_share_is_no_less_for_what_fills_up_their_batch() -> None:
    for changes in (decode(8192), decode(1024, skew=True), decode(40, kv_dtype="int8")):
        for batch in (1, 3, 5, 33, 64):
            alone = but(BASE, **changes, batch=batch, features="prefix_share")
            graphed = graph.launched(but(alone, features="prefix_share cuda_graph"))
            assert graphed.batch == graph.bucket(batch)
            assert (graphed.requests, graphed.shared_prefix) == (batch, alone.shared_prefix)


class Relaunched:
    """Stands for a graph on a CPU: launches again what it was made of, to where the outputs were then."""

    def __init__(self, launch: Callable[[], dict[str, Tensor]]) -> None:
        self._launch, self.outputs, self.replays = launch, launch(), 0

    def replay(self) -> None:
        for op, output in self._launch().items():
            self.outputs[op].copy_(output)
        self.replays += 1


@pytest.fixture
def captured_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, *others = graph.REQUIRES
    assert gpu.axis == "sm"
    monkeypatch.setattr(graph, "REQUIRES", others)
    monkeypatch.setattr(graph, "Captured", Relaunched)
    kernels = tuple(replace(each, replays=True) for each in CATALOGUE["attention"])  # Python runs again, too
    monkeypatch.setitem(CATALOGUE, "attention", kernels)  # type: ignore[arg-type]


def _tables(cache: Cache) -> list[Tensor]:
    return [cache.page_table, cache.slots, *cache.rows]


@pytest.mark.usefixtures("captured_on_a_cpu")
@pytest.mark.parametrize("batch", [3, 4])
@pytest.mark.parametrize("features", ["", "prefix_share stale_branch", "cancelled"])
@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
def test_who_was_preempted_comes_back_under_the_graph(batch: int, features: str, kv_dtype: str) -> None:
    problem = but(SMALL, **decode(40), page_size=8, batch=batch, kv_dtype=kv_dtype, features=features)
    wanted, step = Step(problem, "cpu"), Step(but(problem, features=f"cuda_graph preempted {features}"), "cpu")
    wanted.run()
    step.run()
    launched = step.launched
    before = [(each.data_ptr(), each.clone()) for each in _tables(launched.cache)]
    step.capture()
    assert step.launched is launched  # a graph knows no other
    for (address, was), now in zip(before, _tables(launched.cache), strict=True):
        assert now.data_ptr() == address
        assert not (now == was).any()
    step.outputs.clear()
    step.replay()
    for op, output in wanted.outputs.items():
        torch.testing.assert_close(step.outputs[op], output, rtol=1e-6, atol=1e-6)
    # And what holds the result against the textbook finds the requests where the graph does.
    own = step.inputs.cache
    assert torch.equal(own.page_table, launched.cache.page_table[:batch])
    assert torch.equal(own.slots, launched.cache.slots[:batch])
    q = step.outputs["rope_kv_write"]
    torch.testing.assert_close(step.outputs["attention"], eager_attention.attention(q, step.inputs))
    for rows, slot in zip(own.rows, own.slots, strict=True):
        assert read(own.k, rows, own.k_scale).isfinite().all()
        assert rows[-1] == slot


def _with_the_tables_of_its_first_call(kernel: Kernel) -> Kernel:
    kept: list[Cache] = []

    def launch(q: Tensor, inputs: Inputs) -> Tensor:
        if not kept:
            cache = inputs.cache
            rows = tuple(each.clone() for each in cache.rows)
            kept.append(replace(cache, rows=rows, page_table=cache.page_table.clone()))
        return kernel.launch(q, replace(inputs, cache=kept[0]))  # type: ignore[no-any-return]

    return replace(kernel, launch=launch)


def _verdicts(features: str, device: str) -> dict[str, str]:
    call = ReferenceEngine(device).prepare(
        Cell.parse(f"decode/fp16/kv-fp16/h4x2x64/paged16/causal/neox/{features}/b3q1k100")
    )
    call.run(lambda _: torch.inference_mode())
    found = check(call.numbers())
    assert found is not None
    return {op: one.verdict for op, one in found.items()}


@pytest.mark.parametrize(("features", "verdict"), [("cuda_graph", "ok"), ("cuda_graph+preempted", "wrong")])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_b72_a_kernel_that_keeps_the_tables_of_the_capture_is_wrong(
    features: str, verdict: str, device: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        request.getfixturevalue("captured_on_a_cpu")
    assert set(_verdicts(features, device).values()) == {"ok"}
    kernels = tuple(map(_with_the_tables_of_its_first_call, CATALOGUE["attention"]))
    monkeypatch.setitem(CATALOGUE, "attention", kernels)  # type: ignore[arg-type]
    assert _verdicts(features, device)["attention"] == verdict
