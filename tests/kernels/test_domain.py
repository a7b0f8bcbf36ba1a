"""Every kernel but the eager ones against the eager op in float32, over the domain that its own `requires` leave it.

What is drawn follows from the catalogue (domain.py): a new kernel is covered with no line here. On a CPU the Triton
kernels run in Triton's interpreter, in fp16 and fp32 (its bf16 is wrong); on a GPU every kernel that takes it runs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from domain import COMPILED, INTERPRETED, Example, drawn, fitting
from hypothesis import HealthCheck, Phase, given, note, settings
from kernel_problems import BASE, but, chunk
from torch import Tensor

from kaudit.cell import DType
from kaudit_kernels import eager_attention
from kaudit_kernels.cache import read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.engine import ARGUMENTS, Outputs, device_facts, ops
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem
from kaudit_probes.devices import SM_COUNT

FAST = [
    pytest.param(op, kernel, id=f"{op}-{kernel.name}")
    for op, kernels in CATALOGUE.items()
    for kernel in kernels
    if kernel.functions
]
"""What is not eager: it names the functions that it launches."""

GLUON = ("flash_prefill_tma",)

LOOKS_AT = {
    "attention": {"sm", "dtype", "kv_dtype", "kv_layout", "mask"},
    "rope_kv_write": {"sm", "dtype", "kv_dtype", "kv_layout"},
    **{op: {"sm", "weight_dtype"} for op in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")},
    **{op: {"sm"} for op in ("logits_mask", "sample")},  # logits are float32 whatever the step is in
}
"""What each fast kernel of an op has to state, where it is not just sm and dtype."""

CHECKED = settings(
    deadline=None,
    derandomize=True,  # the same examples each time: a failure is no matter of luck
    database=None,
    phases=[Phase.generate],  # the cells are small already, and an interpreter takes minutes to make them smaller
    # The interpreter is slow, and some kernels take few of the cells that can be drawn.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

pytestmark = pytest.mark.usefixtures("poisoned_outputs")


@pytest.mark.parametrize(("op", "kernel"), FAST)
def test_it_states_what_its_op_looks_at(op: str, kernel: Kernel) -> None:
    assert {needed.axis for needed in kernel.requires} >= LOOKS_AT.get(op, {"sm", "dtype"})


@pytest.mark.parametrize(("op", "kernel"), FAST)
def test_on_a_cpu(op: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("compiled here, see below")
    if ".cuda." in kernel.launch.__module__:
        pytest.skip("nothing interprets CUDA C++")
    if kernel.name in GLUON:
        pytest.skip("Triton's interpreter does not know Gluon")
    gpus = [gpu for gpu in SM_COUNT.items() if _takes(kernel, gpu[0])]
    dtypes = ("fp16", "fp32") if gpus else ("fp16", "fp32", "bf16")
    if gpus:
        pytest.importorskip("triton")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    if not fitting(kernel, dtypes):
        pytest.skip("in bf16 alone, in which the interpreter is wrong")

    @settings(CHECKED, max_examples=4)
    @given(drawn(kernel, dtypes, INTERPRETED, gpus or [(0, 0)]))
    def check(examples: list[Example]) -> None:
        for cell, problem in examples:
            note(f"{cell.id} on sm_{problem.sm}")
            _is_right(op, kernel, problem, "cpu")

    check()


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "kernel"), FAST)
def test_on_a_gpu(op: str, kernel: Kernel) -> None:
    here = device_facts("cuda")
    if not _takes(kernel, here[0]):
        pytest.skip(f"not for sm_{here[0]}")

    @settings(CHECKED, max_examples=6)
    @given(drawn(kernel, get_args(DType), COMPILED, [here]))
    def check(examples: list[Example]) -> None:
        for cell, problem in examples:
            note(cell.id)
            _is_right(op, kernel, problem, "cuda")

    check()


def _takes(kernel: Kernel, sm: int) -> bool:
    return all(each.holds(sm) for each in kernel.requires if each.axis == "sm" and each.beside is None)


def _unwritten(q: Tensor, inputs: Inputs) -> Tensor:
    out = eager_attention.attention(q, inputs)
    out[-1, 0] = torch.nan
    return out


def _off(q: Tensor, inputs: Inputs) -> Tensor:
    """One head of all a percent off."""
    out = eager_attention.attention(q, inputs)
    out[:, 1] *= 1.01
    return out


def _trespassing(q: Tensor, inputs: Inputs) -> Tensor:
    inputs.cache.k[inputs.cache.rows[1][0]] += 1
    return eager_attention.attention(q, inputs)


def _misplaced(q: Tensor, inputs: Inputs) -> Tensor:
    inputs.cache.v[inputs.cache.slots[0]] *= 1.01
    return eager_attention.attention(q, inputs)


@pytest.mark.parametrize("launch", [_unwritten, _off, _trespassing, _misplaced])
def test_a_fault_is_found(launch: Callable[[Tensor, Inputs], Tensor]) -> None:
    problem = but(BASE, **chunk(5, 40), dtype="fp16", q_heads=4, kv_heads=2, head_dim=64, batch=2)
    faulty = Kernel("faulty", requires=(), launch=launch)
    sound = Kernel("sound", requires=(), launch=eager_attention.attention)
    _is_right("attention", sound, problem, "cpu")
    with pytest.raises(AssertionError):
        _is_right("attention", faulty, problem, "cpu")


def _is_right(op: str, kernel: Kernel, problem: Problem, device: str) -> None:
    inputs = make_inputs(problem, device, seed=0)
    done: Outputs = {}
    for before in ops(problem):
        if before == op:
            break
        done[before] = CATALOGUE[before][-1].launch(*ARGUMENTS[before](inputs, done))
    before_it, reference = _apart(inputs), _apart(inputs)
    found = kernel.launch(*ARGUMENTS[op](inputs, done))  # which alone keep the strides that a cell asks for
    wanted = CATALOGUE[op][-1].launch(*map(_widened, ARGUMENTS[op](reference, done)))
    _near(found, wanted)
    _wrote_the_same(inputs, reference, before_it)


def _apart(inputs: Inputs) -> Inputs:
    """The same inputs, with a cache of their own to write to."""
    cache = inputs.cache
    return replace(inputs, cache=replace(cache, k=cache.k.clone(), v=cache.v.clone()))


def _widened(argument: Any) -> Any:
    """In float32, where the eager op then computes without rounding in between."""
    return argument.float() if isinstance(argument, Tensor) and argument.is_floating_point() else argument


def _near(found: Tensor, wanted: Tensor) -> None:
    """Within two units in the last place, of the element or of the largest one.

    A sum of many terms is small where they cancel, yet each was rounded as it was: the largest element tells how they
    are sized. Half precision rounds the softmax weights before they meet V, and the result.
    """
    if not found.is_floating_point():
        assert torch.equal(found, wanted)
        return
    # Sums of float32 are taken in another order: some units.
    unit = 2 * torch.finfo(found.dtype).eps * (8 if found.dtype == torch.float32 else 1)
    largest = wanted[wanted.isfinite()].abs().max().item()
    torch.testing.assert_close(found.float(), wanted.float(), rtol=unit, atol=unit * largest)


def _wrote_the_same(mine: Inputs, reference: Inputs, before: Inputs) -> None:
    """The new tokens' rows of the cache within a step of its dtype, and every other row untouched, bit for bit."""
    for name in ("k", "v"):
        found, wanted, was = (getattr(each.cache, name) for each in (mine, reference, before))
        slots = mine.cache.slots
        others = torch.ones(len(was), dtype=torch.bool, device=was.device).index_fill_(0, slots, False)
        assert torch.equal(_bits(found)[others], _bits(was)[others])
        if torch.equal(_bits(found), _bits(wanted)):
            continue
        given, due = read(found, slots, None), read(wanted, slots, None)  # as stored: before any scale
        torch.testing.assert_close(given, due, **_one_step(found.dtype, due.abs().max().item()))


def _one_step(dtype: torch.dtype, largest: float) -> dict[str, float]:
    """Two may round a number to neighbours: where it lies between, and float32 has it a little otherwise."""
    if dtype == torch.int8:
        return {"rtol": 0, "atol": 1}
    kind = torch.finfo(dtype)
    return {"rtol": 2 * kind.eps, "atol": kind.tiny * kind.eps + 4 * torch.finfo(torch.float32).eps * largest}


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)
