"""One graph, other lengths: attention is captured once, and replayed for requests that have grown or are new.

On a CPU its launches are recorded, with grids, numbers and addresses as they were, and made again; on a GPU it is a
CUDA graph.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_problems import BASE, but, decode, title
from launches import launch
from nearness import near
from torch import Tensor

from kaudit_kernels import eager, graph
from kaudit_kernels.cache import read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.cuda import split_kv_decode
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.eager_attention import SOFTCAP, attend
from kaudit_kernels.engine import Step, device_facts
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.masks import visible
from kaudit_kernels.problem import Problem
from kaudit_kernels.triton.launch_decode import planned, shares_of, tile_of, unshared

pytestmark = pytest.mark.usefixtures("poisoned_outputs")

ATTENTION = {kernel.name: kernel for kernel in CATALOGUE["attention"]}

ROOM = 560
"""Keys that the page table has room for."""
CAPTURED = 256
"""Keys of each request at the capture: one part, with no room left in it."""
LENGTHS = (
    (257, 257, 1, 1),
    (560, 513, 513, 560),  # what was padding is somebody's
    (112, 113, 300, 2),  # as long as the prefix that was shared, and one more
    (1, 1, 1, 1),
)
"""Of each replay."""

TINY = but(BASE, dtype="fp16", q_heads=2, kv_heads=1, head_dim=64, batch=4)

INTERPRETED: list[tuple[str, dict[str, Any]]] = [
    ("split_kv_decode", {}),
    ("split_kv_decode", {"sm_count": 1, "features": "sinks softcap"}),  # 8 parts fill it: they grow with the lengths
    ("split_kv_decode", {"sm_count": 1, "mask": "window", "window": 300, "page_size": 5}),
    ("split_kv_decode", {"sm_count": 1, "kv_dtype": "int8", "q_heads": 4, "kv_heads": 2, "mask": "none"}),
    ("cascade_decode", {"features": "prefix_share"}),
    ("cascade_decode", {"sm_count": 1, "features": "prefix_share sinks", "q_heads": 3, "kv_dtype": "int8"}),
    ("flash_prefill", {"features": "sinks"}),
]
COMPILED: list[tuple[str, dict[str, Any]]] = [
    *INTERPRETED,
    ("warp_decode", {"kv_dtype": "fp8_e4m3"}),
    ("warp_decode", {"kv_dtype": "fp8_e4m3", "sm_count": 1, "features": "sinks softcap", "head_dim": 128}),
    ("warp_decode", {"kv_dtype": "int8", "sm_count": 2, "mask": "window", "window": 300, "q_heads": 8, "kv_heads": 4}),
    ("flash_prefill_tma", {"page_size": 192, "head_dim": 256}),
    ("flash_prefill_tma", {"page_size": 128, "head_dim": 128, "mask": "window", "window": 300}),
]


def _captured(launch: Callable[[], Tensor], device: str) -> tuple[Tensor, Callable[[], object]]:
    """What it returned, which each call of the other writes anew."""
    if device == "cuda":
        launch()  # compiles
        captured = graph.Captured(lambda: {"attention": launch()})
        return captured.outputs["attention"], captured.replay
    from triton.runtime.interpreter import InterpretedFunction

    run, launched = InterpretedFunction.run, []

    def recorded(kernel: Any, *given: Any, **options: Any) -> None:
        launched.append(partial(run, kernel, *given, **options))
        launched[-1]()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpretedFunction, "run", recorded)
        output = launch()
    return output, lambda: [again() for again in launched]


def _due(q: Tensor, inputs: Inputs) -> Tensor:
    """By the lengths that the device is told."""
    problem, cache, out = inputs.problem, inputs.cache, []
    for request, kv_len in enumerate(cache.kv_lens.tolist()):
        tokens = torch.arange(kv_len, device=q.device)
        rows = cache.page_table[request, tokens // problem.page_size].long() * problem.page_size
        rows += tokens % problem.page_size
        k, v = read(cache.k, rows, cache.k_scale), read(cache.v, rows, cache.v_scale)
        seen = visible(problem.mask, problem.window, 1, kv_len, 0).to(q.device)
        cap = SOFTCAP if "softcap" in problem.features else None
        out.append(attend(q[request : request + 1].float(), k, v, seen, cap, inputs.sinks))
    return torch.cat(out)


def _is_right_for_other_lengths(kernel: Kernel, changes: dict[str, Any], device: str) -> None:
    with_room = make_inputs(but(TINY, **decode(ROOM), **changes), device, seed=0)
    generator = torch.Generator(device).manual_seed(1)
    qkv = torch.randn(TINY.batch, with_room.problem.qkv_width, generator=generator, device=device)
    q = eager.rope_kv_write(qkv.to(with_room.x.dtype), with_room)
    problem = replace(with_room.problem, kv_len=CAPTURED, padding=2, graphed=True)
    kv_lens = torch.tensor(problem.kv_lens, dtype=torch.int32, device=device)
    inputs = replace(with_room, problem=problem, cache=replace(with_room.cache, kv_lens=kv_lens))
    assert not [unmet for unmet in kernel.unmet(problem) if not unmet.worth]
    output, replay = _captured(lambda: kernel.launch(q, inputs), device)
    for lengths in LENGTHS:
        kv_lens.copy_(torch.tensor(lengths))
        output.fill_(torch.nan)
        replay()
        near(output, _due(q, inputs), token=2)


@pytest.mark.parametrize(
    ("name", "changes"), INTERPRETED, ids=[f"{name}-{title(given)}" for name, given in INTERPRETED]
)
def test_it_is_right_for_lengths_that_no_capture_saw(name: str, changes: dict[str, Any], device: str) -> None:
    pytest.importorskip("triton")
    _is_right_for_other_lengths(ATTENTION[name], changes, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("name", "changes"), COMPILED, ids=[f"{name}-{title(given)}" for name, given in COMPILED])
def test_a_graph_is_right_for_lengths_that_no_capture_saw(name: str, changes: dict[str, Any], dtype: str) -> None:
    sm, sm_count = device_facts("cuda")
    kernel = ATTENTION[name]
    if kernel.never(sm):
        pytest.skip(f"not for sm_{sm}")
    here = {"dtype": dtype, "kv_dtype": dtype, "weight_dtype": dtype, "sm_count": sm_count} | changes | {"sm": sm}
    _is_right_for_other_lengths(kernel, here, "cuda")


def _launches(kernel: Kernel, problem: Problem) -> list[tuple[Any, ...]]:
    """All that a capture fixes, but for addresses: of memory its size."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    found: list[tuple[Any, ...]] = []

    def fixed(given: Any) -> Any:
        return (
            tuple(given.shape) if isinstance(given, Tensor) else given if isinstance(given, int | float) else str(given)
        )

    def recorded(_: Any, *given: Any, **options: Any) -> None:
        found.append((*map(fixed, given), *sorted(options.items())))

    with pytest.MonkeyPatch.context() as patch:
        for launcher in (InterpretedFunction, JITFunction):
            patch.setattr(launcher, "run", recorded)
        patch.setattr(split_kv_decode, "launch", recorded)
        launch("attention", kernel, problem)
    return found


@pytest.mark.parametrize("name", [name for name, kernel in ATTENTION.items() if kernel.replays])
def test_what_is_captured_hangs_on_no_length(name: str) -> None:
    pytest.importorskip("triton")
    kernel, problem = ATTENTION[name], but(BASE, page_size=512)
    alone, graphed = (
        [_launches(kernel, replace(problem, kv_len=kv_len, graphed=graphed)) for kv_len in (200, 257, 512)]
        for graphed in (False, True)
    )
    assert graphed[0] == graphed[1] == graphed[2]
    assert (alone[0] == alone[2]) == name.startswith("flash_prefill")  # which never looks


def test_every_kernel_that_says_so_is_tried() -> None:
    assert {name for name, _ in COMPILED} == {kernel.name for kernel in CATALOGUE["attention"] if kernel.replays}


@pytest.mark.gpu
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8_e4m3"])
def test_a_step_that_was_captured_attends_to_fewer_keys_when_told(kv_dtype: str) -> None:
    sm, sm_count = device_facts("cuda")
    step = Step(
        but(BASE, **decode(4096), kv_dtype=kv_dtype, batch=5, features="cuda_graph", sm=sm, sm_count=sm_count), "cuda"
    )
    step.run()
    step.capture()
    step.launched.cache.kv_lens.copy_(torch.tensor((4096, 3000, 257, 256, 1, 1, 1, 1)))
    step.replay()
    wanted = _due(step.outputs["rope_kv_write"], step.inputs)
    near(step.outputs["attention"], wanted, token=2)


def _of(problem: Problem, lens: list[int], room: int) -> tuple[int, int]:
    """Parts of these lengths, and those that a graph has programs for."""
    tile = tile_of(problem, problem.query_rows)
    inputs: Any = SimpleNamespace(problem=problem, cache=SimpleNamespace(page_table=torch.empty(problem.batch, room)))
    return shares_of(problem, tile, lens).parts, planned(inputs, tile, 0).parts


def test_a_graph_has_programs_for_all_parts_and_not_many_more() -> None:
    random = Random(0)
    tightest = 0.0
    for _ in range(500):
        changes = {"batch": random.choice(graph.BUCKETS), "sm_count": random.choice((1, 2, 20, 132))}
        problem = but(BASE, **changes, page_size=1, graphed=True)
        room = random.choice((1, 256, 257, 5000))
        lens = [random.randint(1, room) for _ in range(problem.batch)]
        parts, programs = _of(problem, lens, room)
        assert parts <= programs
        tightest = max(tightest, parts / programs)
    assert tightest == 1.0
    # Short requests of a table that has room for short ones cost no programs for the whole GPU.
    assert _of(but(BASE, batch=1, graphed=True, page_size=1), [300], 512) == (2, 2)
    assert _of(but(BASE, batch=8, graphed=True, page_size=1), [4096] * 8, 131_072) == (128, 139)


def test_a_window_bounds_what_a_graph_has_programs_for() -> None:
    windowed = but(BASE, mask="window", window=512, batch=1, page_size=1, graphed=True)
    assert _of(windowed, unshared(replace(windowed, kv_len=9000), 0), 131_072) == (2, 2)
