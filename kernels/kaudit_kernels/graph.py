"""A decode step as one CUDA graph: when, for which batch, what fills the batch up, and the capture.

A graph replays the very launches that it was captured with: their grids, numbers and addresses. So it is for one of a
few batch sizes, and for one shared prefix where a kernel reads that once for all. Lengths it takes as they come, as far
as the page table has room: `problem.graphed` tells launches to fix nothing that hangs on them, and a step whose
attention does so all the same is launched op by op.

A batch is filled up to the next of those sizes with requests of nobody. Such a request has one token, zero in every
input, and a KV length of one. All of them write that token, K and V of zero, to one scratch row behind everybody's, and
read it: an op needs no word for padding, a length is never zero, and nothing of a real request is touched. Nor is it
taken for one: what requests share, the real ones do, whatever fills up their batch.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from kaudit_kernels.cache import Cache
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.inputs import Inputs
from kaudit_kernels.masks import Masks
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import Unmet, batch, features, mask, phase, q_len, sm

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Requests of the batches that are captured. Twice the one before: less than half of a replay is padding."""

REQUIRES = (
    sm.at_least(1),  # a CPU has no graphs
    phase.one_of("decode"),  # elsewhere lengths differ from step to step, and launches are few beside the work
    q_len.at_most(1),
    batch.at_most(BUCKETS[-1]),
    mask.one_of("none", "causal", "window"),  # a mask tensor has no rows for padding
    # Not idle nor vacant: a batch that is captured has one token of each request. Not transposed, sliced or broadcast:
    # filling up makes a copy, which lies as any other. Not speculative_tree: its mask is a tensor. Not bad_last_page:
    # no kernel takes it.
    features.only(
        *("cuda_graph", "prefix_share", "grammar", "softcap", "sinks", "top_k", "top_p"),
        *("cancelled", "preempted", "stale_branch"),  # whatever was in the pages, the tables name them
    ),
)
"""What a problem needs to be captured; otherwise each op is launched from the host."""


def against(problem: Problem) -> tuple[Unmet, ...]:
    """What a problem lacks to be captured; of one that lacks nothing else, a kernel of attention that can be."""
    return tuple(found for needed in REQUIRES if (found := needed.check(problem))) or _attention_against(problem)


def _attention_against(problem: Problem) -> tuple[Unmet, ...]:
    kernels = CATALOGUE["attention"]
    chosen = next((kernel for kernel in kernels if not kernel.unmet(problem)), None)
    if chosen is None or chosen.replays:  # what none takes is refused when it is launched
        return ()
    able = ", ".join(kernel.name for kernel in kernels if kernel.replays)
    return (Unmet("attention", chosen.name, f"one of {able}"),)


def bucket(requests: int) -> int:
    """The smallest batch that is captured and has room for these. Raises ValueError for more than the largest has."""
    return min(size for size in BUCKETS if size >= requests)


def launched(problem: Problem) -> Problem:
    """What the ops are launched for: with the feature cuda_graph, where it can be captured, the batch of a bucket."""
    if "cuda_graph" not in problem.features or against(problem):
        return problem
    return _padded(problem, bucket(problem.batch))


def _padded(problem: Problem, size: int) -> Problem:
    return replace(problem, batch=size, padding=size - problem.batch, graphed=True)


def filled_up(inputs: Inputs, size: int) -> Inputs:
    """The inputs of a batch of `size`, the last requests of which are padding. K, V and tables are copies, if any are.

    Of `cache.rows` those of the requests are the same tensors: they move with both.
    """
    problem = _padded(inputs.problem, size)
    padding = problem.padding
    if not padding:
        return replace(inputs, problem=problem)
    turned = problem.rope != "none"
    return replace(
        inputs,
        problem=problem,
        x=_behind(inputs.x, padding),
        cosines=_behind(inputs.cosines, padding, 1) if turned else inputs.cosines,
        sines=_behind(inputs.sines, padding) if turned else inputs.sines,
        cache=_with_scratch(inputs.cache, problem.page_size, padding),
        masks=Masks(problem, str(inputs.x.device), seed=0),  # without masks drawn at random
        logits=_behind(inputs.logits, padding),
        allowed=_behind(inputs.allowed, padding, -1),
        draws=_behind(inputs.draws, padding),
    )


def _with_scratch(cache: Cache, page_size: int, padding: int) -> Cache:
    """A page more, or a row, behind all others, which is that of every padded request."""
    row = len(cache.k)
    own = torch.tensor([row], device=cache.slots.device)
    k, v = (_behind(stored.view(torch.uint8), page_size or 1).view(stored.dtype) for stored in (cache.k, cache.v))
    return replace(
        cache,
        k=k,
        v=v,
        rows=cache.rows + tuple(own.clone() for _ in range(padding)),  # each moves by itself, see cache.resume
        slots=_behind(cache.slots, padding, row),
        q_start=torch.cat((cache.q_start, cache.q_start[-1] + torch.arange(1, padding + 1).to(cache.q_start))),
        kv_lens=_behind(cache.kv_lens, padding, 1),
        kv_start=_behind(cache.kv_start, padding, 0 if page_size else row),
        page_table=_behind(cache.page_table, padding, row // page_size if page_size else 0),
    )


def without_padding(cache: Cache, problem: Problem) -> Cache:
    """What a cache that was filled up holds of the requests of `problem`: K and V as they are, views of the tables."""
    batch = problem.batch
    return replace(
        cache,
        rows=cache.rows[:batch],
        slots=cache.slots[: problem.tokens],
        q_start=cache.q_start[: batch + 1],
        kv_lens=cache.kv_lens[:batch],
        kv_start=cache.kv_start[:batch],
        page_table=cache.page_table[:batch],
    )


def _behind(x: Tensor, count: int, value: int = 0) -> Tensor:
    """x with `count` more rows of one value."""
    return torch.cat((x, x.new_full((count, *x.shape[1:]), value)))


class Captured:
    """A step captured once. Whatever it reads and writes stays where it was at the capture."""

    outputs: dict[str, Tensor]
    """Per op, the memory that every replay writes its output to, that of padding included."""
    replays: int

    def __init__(self, launch: Callable[[], dict[str, Tensor]]) -> None:
        """`launch` has run before: compilers and libraries' first calls do what no capture takes."""
        self.replays = 0
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.outputs = launch()

    def replay(self) -> None:
        """On the current stream."""
        self._graph.replay()
        self.replays += 1

    @cached_property  # nothing is added after the capture, and to ask takes a list of all of torch's memory
    def pool_bytes(self) -> int:
        """Device memory set aside for it: outputs, and what ops need for a while."""
        pool = tuple(self._graph.pool())
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        return sum(each["total_size"] for each in segments if tuple(each["segment_pool_id"]) == pool)
