"""One decoder-layer step: per op, decide, then launch."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import ANNOUNCER, Decision, decide
from kaudit_kernels.inputs import Inputs, make_inputs
from kaudit_kernels.problem import Problem

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
    "sample": lambda given, done: (done.get("logits_mask", given.logits),),
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
    """A step with its weights, inputs and cache in place. It may run many times, each with the same result."""

    decisions: dict[str, Decision]
    """Per op, the decision of the last run."""
    outputs: Outputs
    """Per op, the output of the last run; see `eager` for shapes."""

    def __init__(self, problem: Problem, device: str, seed: int = 0) -> None:
        self.problem = problem
        self.inputs = make_inputs(problem, device, seed)
        self.decisions = {}
        self.outputs = {}

    def run(self, span: Span = nullcontext) -> None:
        """Run every op once. Raises NoKernel before the launch of the op that no kernel takes."""
        self.decisions, self.outputs = {}, {}
        for op in ops(self.problem):
            decision = self.decisions[op] = decide(op, self.problem, CATALOGUE)
            if decision.rejected:
                log.info("%s", decision, extra={"decision": decision})
            arguments = ARGUMENTS[op](self.inputs, self.outputs)
            with span(op):
                self.outputs[op] = decision.chosen.launch(*arguments)
