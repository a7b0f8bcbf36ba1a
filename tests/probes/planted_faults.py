"""Faults to plant into the reference engine's attention, around the chosen kernel: it runs, on other inputs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kaudit_kernels.cache import read
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.eager_attention import attend
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.masks import Masks
from kaudit_probes.poison import poison

Launch = Callable[[Tensor, Inputs], Tensor]

_DECODE = "decode/bf16/kv-{kv}/h4x2x64/paged16/{mask}/neox/{features}/b2q1k100"
_CHUNK = "chunked_prefill/bf16/kv-bf16/h4x2x64/paged16/{mask}/neox/plain/b2q16k100"


@dataclass(frozen=True)
class Fault:
    """`plant`: what to do instead of the launch that it is given. `named`: how the hint begins, after "as if"."""

    cell: str
    plant: Callable[[Launch, Tensor, Inputs], Tensor]
    verdict: str
    named: str
    ignored: str = ""


def of_problem(**changes: Any) -> Callable[[Launch, Tensor, Inputs], Tensor]:
    """The kernel is told another problem."""

    def plant(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
        problem = replace(inputs.problem, **changes)
        return launch(q, replace(inputs, problem=problem, masks=Masks(problem, str(q.device), 0)))

    return plant


def of_cache(change: Callable[[Any], dict[str, Any]]) -> Callable[[Launch, Tensor, Inputs], Tensor]:
    """The kernel is given another cache."""
    return lambda launch, q, inputs: launch(q, replace(inputs, cache=replace(inputs.cache, **change(inputs.cache))))


def _stale_page(cache: Any) -> dict[str, Any]:
    table, rows = cache.page_table.clone(), cache.rows[1].clone()
    table[1, 2], rows[32:48] = table[1, 0], rows[:16]
    return {"page_table": table, "rows": (cache.rows[0], rows)}


def _one_key_more(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
    cache = inputs.cache
    rows = tuple(torch.cat((each, each[-1:] + 1)) for each in cache.rows)
    longer = replace(cache, rows=rows, kv_lens=cache.kv_lens + 1)
    problem = replace(inputs.problem, kv_len=inputs.problem.kv_len + 1)
    return launch(q, replace(inputs, cache=longer, problem=problem, masks=Masks(problem, str(q.device), 0)))


def a_row_left(launch: Launch, q: Tensor, inputs: Inputs) -> Tensor:
    out = launch(q, inputs)
    poison(out[1])
    return out


def _merged_blindly(_: Launch, q: Tensor, inputs: Inputs) -> Tensor:
    """Four parts of the keys, and the mean of what they come to."""
    cache, outs = inputs.cache, []
    for request, rows in enumerate(cache.rows):
        k, v = (read(stored, rows, None).split(25) for stored in (cache.k, cache.v))
        own = q[request : request + 1].float()
        outs.append(torch.stack([attend(own, *part, None) for part in zip(k, v, strict=True)]).mean(0))
    return torch.cat(outs).to(q.dtype)


PLAIN = _DECODE.format(kv="bf16", mask="causal", features="plain")
STALE = _DECODE.format(kv="bf16", mask="causal", features="stale_branch")
NARROW = _DECODE.format(kv="fp8_e4m3", mask="causal", features="plain")

FAULTS = {
    "window one key wider": Fault(
        _DECODE.format(kv="bf16", mask="window32", features="plain"),
        of_problem(window=33),
        "wrong",
        "the window were one key wider",
    ),
    "window one key narrower": Fault(
        _CHUNK.format(mask="window32"), of_problem(window=31), "wrong", "the window were one key narrower"
    ),
    "window dropped": Fault(
        _CHUNK.format(mask="window32"),
        of_problem(mask="causal", window=0),
        "wrong",
        "the window were not applied",
        ignored="window",
    ),
    "mask dropped": Fault(
        _CHUNK.format(mask="causal"),
        of_problem(mask="none"),
        "wrong",
        "the mask were not applied",
        ignored="causal mask",
    ),
    "stale page": Fault(PLAIN, of_cache(_stale_page), "wrong", "page 2 of request 1 were page 0 of request 1"),
    "stale key of a dropped branch": Fault(STALE, _one_key_more, "wrong", "the request went on, with one stale key"),
    "scale of K taken for V's": Fault(
        NARROW,
        of_cache(lambda cache: {"k_scale": cache.v_scale, "v_scale": cache.k_scale}),
        "wrong",
        "the scales of K and V were swapped",
    ),
    "scale of another head": Fault(
        NARROW,
        of_cache(lambda cache: {"k_scale": cache.k_scale.flip(0), "v_scale": cache.v_scale.flip(0)}),
        "wrong",
        "heads had each other's scales",
    ),
    "scales dropped": Fault(
        NARROW,
        of_cache(
            lambda cache: {
                "k_scale": torch.ones_like(cache.k_scale),
                "v_scale": torch.ones_like(cache.v_scale),
            }
        ),
        "wrong",
        "the scales of K and V were not applied",
        ignored="scales of K and V",
    ),
    "row not written": Fault(_CHUNK.format(mask="causal"), a_row_left, "unwritten", ""),
    "parts merged without log-sum-exp": Fault(
        PLAIN, _merged_blindly, "wrong", "4 parts of the keys were merged without their log-sum-exp"
    ),
}


def planted(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Each attention kernel of the catalogue does that instead; which one is chosen stays as it was."""

    def around(launch: Launch) -> Launch:
        return lambda q, inputs: fault.plant(launch, q, inputs)

    kernels = tuple(replace(kernel, launch=around(kernel.launch)) for kernel in CATALOGUE["attention"])
    monkeypatch.setitem(CATALOGUE, "attention", kernels)  # type: ignore[arg-type]
