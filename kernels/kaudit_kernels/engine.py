"""One decoder-layer step: per op, decide, then launch."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from kaudit_kernels import graph
from kaudit_kernels.admission import admit
from kaudit_kernels.cache import resume
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import ANNOUNCER, Decision, decide
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem
from kaudit_kernels.requirements import Unmet

log = logging.getLogger(ANNOUNCER)

Span = Callable[[str], AbstractContextManager[object]]
"""`with span(op):` goes around the launch of each op, and around nothing else."""

Outputs = dict[str, Tensor]
"""Per op that has run, what it returned."""

ARGUMENTS: dict[str, Callable[[Inputs, Outputs], tuple[object, ...]]] = {
    "rms_norm": lambda given, _: (given.x, given.attention_norm),
    "qkv_proj": lambda given, done: (done["rms_norm"], given.qkv),
    "rope_kv_write": lambda given, done: (done["qkv_proj"], given),
    "attention": lambda given, done: (done["rope_kv_write"], given),
    "o_proj": lambda given, done: (done["attention"].flatten(1), given.o),
    "add_rms_norm": lambda given, done: (done["o_proj"], given.x, given.mlp_norm),
    "gate_up_proj": lambda given, done: (done["add_rms_norm"][0], given.gate_up),
    "silu_mul": lambda _, done: (done["gate_up_proj"],),
    "down_proj": lambda given, done: (done["silu_mul"], given.down),
    "logits_mask": lambda given, _: (given.logits, given.allowed),
    "sample": lambda given, done: (done.get("logits_mask", given.logits), given),
}
"""What each op is launched with, in the order in which the ops run."""


def ops(problem: Problem) -> tuple[str, ...]:
    """The ops of the problem's step, in the order in which they run."""
    return tuple(op for op in ARGUMENTS if op != "logits_mask" or "grammar" in problem.features)


def device_facts(device: str) -> tuple[int, int]:
    """`sm` and `sm_count` of a problem on "cuda" or "cpu"."""
    if torch.device(device).type == "cpu":
        return 0, 0
    properties = torch.cuda.get_device_properties(device)
    return 10 * properties.major + properties.minor, properties.multi_processor_count


class Step:
    """A step with its weights, inputs and cache in place. It may run many times, each with the same result.

    With the feature cuda_graph, where the problem can be captured, it is launched with a batch filled up to a bucket.
    """

    decisions: dict[str, Decision]
    """Per op, the decision of the last run: on what is launched, padding included."""
    outputs: Outputs
    """Per op, the output of the last run or replay, without padding; see `eager` for shapes."""
    launched: Inputs
    """What the ops are launched with: `inputs`, and padding."""
    ungraphed: tuple[Unmet, ...]
    """Why there is no graph, where one was asked for."""
    capturable: bool
    """Whether a graph was asked for and can be made."""
    captured: graph.Captured | None

    def __init__(self, problem: Problem, device: str, seed: int = 0) -> None:
        """Raises Inadmissible, before anything is made.

        Requests that were preempted have run a step by then and are back; of a step to be captured, see capture().
        """
        admit(problem)
        self.problem = problem
        self.inputs = self.launched = make_inputs(problem, device, seed)
        self.decisions = {}
        self.outputs = {}
        self.captured = None
        asked = "cuda_graph" in problem.features
        self.ungraphed = graph.against(problem) if asked else ()
        self.capturable = asked and not self.ungraphed
        if self.capturable:
            self.fill_up(graph.bucket(problem.batch))
        elif "preempted" in problem.features:
            self.run()
            resume(self.inputs.cache, problem.page_size)

    def fill_up(self, size: int) -> None:
        """Launch for a graph of `size` requests. K, V and tables move: a step that was captured would not see it."""
        self.launched = graph.filled_up(self.inputs, size)
        if self.launched.problem.padding:
            self.inputs = replace(self.inputs, cache=graph.without_padding(self.launched.cache, self.problem))

    def run(self, span: Span = nullcontext) -> None:
        """Launch every op once, by itself. Raises NoKernel before the launch of the op that no kernel takes."""
        if self.ungraphed:
            why = "; ".join(map(str, self.ungraphed))
            log.info("step: launched op by op, not as a CUDA graph (%s)", why, extra={"ungraphed": self.ungraphed})
        self.outputs = self._real(self._launch(span))

    def capture(self) -> None:
        """Make a graph of the step. Raises ValueError unless it has run: a first call may do what no capture takes.

        Requests that were preempted come back once it is made, in other pages: it has the addresses of the tables.
        """
        if not self.outputs:
            raise ValueError("a step runs before it is captured")
        self.captured = graph.Captured(partial(self._launch, nullcontext))
        if "preempted" in self.problem.features:
            resume(self.launched.cache, self.problem.page_size)

    def replay(self) -> None:
        """What run() launches, from the graph that was made of it."""
        if self.captured is None:
            raise ValueError("a step is captured before it is replayed")
        self.captured.replay()
        self.outputs = self._real(self.captured.outputs)

    def _launch(self, span: Span) -> Outputs:
        self.decisions, done = {}, Outputs()
        problem = self.launched.problem
        for op in ops(problem):
            decision = self.decisions[op] = decide(op, problem, CATALOGUE)
            if decision.rejected:
                log.info("%s", decision, extra={"decision": decision})
            arguments = ARGUMENTS[op](self.launched, done)
            with span(op):
                done[op] = decision.chosen.launch(*arguments)
        return done

    def _real(self, outputs: Outputs) -> Outputs:
        """Without the rows of padding, the last ones, of which a step that is captured has one for each request."""
        if not self.launched.problem.padding:
            return outputs
        tokens = self.problem.tokens
        return {op: one[:, :tokens] if op == "add_rms_norm" else one[:tokens] for op, one in outputs.items()}
