"""Every kernel but the eager ones against the eager op in float32, over the domain that its own `requires` leave it.

What is tried follows from the catalogue (domain.py): a new kernel is covered with no line here. On a GPU every kernel
that takes it runs, over all of its domain; test_domain_covers.py says what that holds. On a CPU the Triton kernels run
in Triton's interpreter, in fp16 and fp32 (its bf16 is wrong), over a few problems that meet every mask, KV dtype and
feature once.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from domain import COMPILED, INTERPRETED, fitting
from domain_draws import Example, examples, few_examples
from kernel_problems import BASE, but, chunk, prefill, title
from nearness import near
from torch import Tensor

from kaudit.cell import Cell, DType
from kaudit_kernels import eager_attention
from kaudit_kernels.cache import read, resume
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.engine import ARGUMENTS, Outputs, device_facts
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem
from kaudit_probes.devices import SM_COUNT
from kaudit_probes.engines.reference import problem_of

FAST = [(op, kernel) for op, kernels in CATALOGUE.items() for kernel in kernels if kernel.functions]
"""What is not eager: it names the functions that it launches."""

each_kernel = pytest.mark.parametrize(
    ("op", "kernel"), [pytest.param(*each, id=f"{each[0]}-{each[1].name}") for each in FAST]
)

GLUON = ("flash_prefill_tma",)

SEED = 0
"""Of the inputs."""

pytestmark = pytest.mark.usefixtures("poisoned_outputs")


@each_kernel
def test_it_states_sm_dtype_layout_and_mask(op: str, kernel: Kernel) -> None:
    stated = {needed.axis for needed in kernel.requires}
    assert stated >= {"sm", "dtype", "kv_layout", "mask"}, op


@each_kernel
def test_on_a_cpu(op: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("compiled here, see below")
    if ".cuda." in kernel.launch.__module__:
        pytest.skip("nothing interprets CUDA C++")
    if kernel.name in GLUON:
        pytest.skip("Triton's interpreter does not know Gluon")
    gpus = [(sm, sm_count) for sm, sm_count in SM_COUNT.items() if not kernel.never(sm)]
    dtypes = fitting(kernel, ("fp16", "fp32") if gpus else ("fp16", "fp32", "bf16"))
    if gpus:
        pytest.importorskip("triton")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    if not dtypes:
        pytest.skip("in bf16 alone, in which the interpreter is wrong")
    here = gpus[-1] if gpus else (0, 0)
    _are_right(op, kernel, few_examples(op, kernel, dtypes, INTERPRETED, here), "cpu")


PARTS = {"attention": 12, "rope_kv_write": 3}
"""Tests that the rows of a kernel are dealt out to, so that compilers run side by side."""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "kernel", "part"),
    [
        pytest.param(op, kernel, slice(i, None, parts), id=f"{op}-{kernel.name}-{i + 1}of{parts}")
        for op, kernel in FAST
        for parts in (PARTS.get(op, 2),)
        for i in range(parts)
    ],
)
def test_on_a_gpu(op: str, kernel: Kernel, part: slice) -> None:
    here = device_facts("cuda")
    if kernel.never(here[0]):
        pytest.skip(f"not for sm_{here[0]}")
    _are_right(op, kernel, examples(op, kernel, fitting(kernel, get_args(DType)), COMPILED, here, part), "cuda")


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


def _short_sighted(q: Tensor, inputs: Inputs) -> Tensor:
    """The last query does not see the first key: one of hundreds, which is less than what the first queries' rounding
    comes to."""
    out, cache = eager_attention.attention(q, inputs), inputs.cache
    k, v = (read(stored, cache.rows[-1][1:], None) for stored in (cache.k, cache.v))
    out[-1] = eager_attention.attend(q[-1:].float(), k, v, None)[0]
    return out


@pytest.mark.parametrize("launch", [_unwritten, _off, _trespassing, _misplaced, _short_sighted])
@pytest.mark.parametrize("changes", [chunk(5, 40), prefill(700, page_size=64)], ids=title)
def test_a_fault_is_found(launch: Callable[[Tensor, Inputs], Tensor], changes: dict[str, Any]) -> None:
    problem = but(BASE, **changes, dtype="fp16", q_heads=4, kv_heads=2, head_dim=64, batch=2)
    faulty = Kernel("faulty", requires=(), launch=launch)
    sound = Kernel("sound", requires=(), launch=eager_attention.attention)
    _is_right("attention", sound, problem, "cpu")
    with pytest.raises(AssertionError):
        _is_right("attention", faulty, problem, "cpu")


def test_all_that_is_wrong_is_told_with_what_makes_it_again() -> None:
    cells = [Cell.parse(f"decode/fp16/kv-fp16/h4x2x64/paged16/causal/neox/plain/b2q1k{kv_len}") for kv_len in (7, 40)]
    faulty = Kernel("faulty", requires=(), launch=_off)
    with pytest.raises(pytest.fail.Exception) as told:
        _are_right("attention", faulty, [(cell, problem_of(cell, 90, 132)) for cell in cells], "cpu")
    assert [line for line in str(told.value).splitlines() if not line.startswith(" ")] == [
        f"attention faulty {cell.id} sm=90 sm_count=132 vocabulary=32768 seed=0" for cell in cells
    ]


def _are_right(op: str, kernel: Kernel, tried: Iterable[Example], device: str) -> None:
    """All of them, or a line for each that is not: enough for _is_right to do it again."""
    wrong = []
    for cell, problem in tried:
        where = f"{op} {kernel.name} {cell.id} sm={problem.sm} sm_count={problem.sm_count} "
        where += f"vocabulary={problem.vocabulary} seed={SEED}"
        print(where)  # a hang leaves nothing else
        try:
            _is_right(op, kernel, problem, device)
        except AssertionError as error:
            wrong += [where, *(f"    {line}" for line in str(error).splitlines())]
        except Exception as error:
            error.add_note(where)
            raise
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def _is_right(op: str, kernel: Kernel, problem: Problem, device: str) -> None:
    """The kernel's result, and what it does to the cache, beside the eager op's; what runs before is eager for both."""
    inputs = make_inputs(problem, device, SEED)
    if "preempted" in problem.features:
        resume(inputs.cache, problem.page_size)
    done = _Done(inputs)
    if op == "sample" and "grammar" in problem.features:
        done["logits_mask"]
    arguments = ARGUMENTS[op](inputs, done)
    before_it, reference = _apart(inputs), _apart(inputs)
    found = kernel.launch(*arguments)  # which alone keep the strides that a cell asks for
    wanted = CATALOGUE[op][-1].launch(*map(_widened, ARGUMENTS[op](reference, done)))
    near(found, wanted, token=2 if op in ("attention", "rope_kv_write") else 1)
    _wrote_the_same(inputs, reference, before_it)


class _Done(Outputs):
    """The outputs of the ops before, each made by the eager op when it is asked for."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def __missing__(self, op: str) -> Tensor:
        self[op] = CATALOGUE[op][-1].launch(*ARGUMENTS[op](self._inputs, self))
        return self[op]


def _apart(inputs: Inputs) -> Inputs:
    """The same inputs, with a cache of their own to write to."""
    cache = inputs.cache
    return replace(inputs, cache=replace(cache, k=cache.k.clone(), v=cache.v.clone()))


def _widened(argument: Any) -> Any:
    """In float32, where the eager op then computes without rounding in between."""
    return argument.float() if isinstance(argument, Tensor) and argument.is_floating_point() else argument


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
