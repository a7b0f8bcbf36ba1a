"""What a diff yields: one difference between two tables, of a kind, in a sentence."""

from typing import Literal

from msgspec import Struct

from kaudit.observation import Row

Kind = Literal[
    "wrong_result",
    "crashed",
    "hung",
    "contradiction",
    "silent_fallback",
    "unseen",
    "predicted_fallback",
    "graph_downgrade",
    "announced_fallback",
    "slower",
    "refused",
    "removed",
    "flapping",
    "rerouted",
    "relaunched",
    "reason_changed",
    "added",
    "faster",
    "improved",
    "recovered",
]

KINDS: dict[Kind, str] = {
    "wrong_result": "the output is wrong or partly unwritten",
    "crashed": "the cell ended in a signal, a CUDA error or an exception",
    "hung": "the cell did not end within its limit",
    "contradiction": "the engine claims one path, the kernels show another",
    "silent_fallback": "newly, a faster path is not taken and the engine announced no reason for that path",
    "unseen": "the capture cannot vouch for what ran",
    "predicted_fallback": "a slower path is predicted, or one that newly is not the fastest; nothing was run",
    "graph_downgrade": "less of the step runs in a CUDA graph than before, or than is newly asked for",
    "announced_fallback": "newly, a faster path is not taken, and the engine said why",
    "slower": "takes longer than before, beyond the measured noise",
    "refused": "the engine says no where it did not before",
    "removed": "no longer run, or no longer checked",
    "flapping": "what differs from run to run of one sweep, and was seen before or is no loss",
    "rerouted": "other kernels, of the same rank",
    "relaunched": "the same kernels, launched or told apart differently: counts, grids, blocks, registers, families",
    "reason_changed": "the same path, but the engine says something else about it",
    "added": "run or checked for the first time, without a problem",
    "faster": "takes less time than before, beyond the measured noise",
    "improved": "a faster path, more of a CUDA graph, or a refusal in words instead of a crash",
    "recovered": "runs, or is right, where it was not before",
}
"""Each kind with its meaning, worst first."""


class Change(Struct, frozen=True, gc=False):
    """One difference. `before` and `after` are the rows of this cell and op, None on the side that has none.

    `op` is WHOLE_CELL for a change that stands for all ops of the cell.
    """

    kind: Kind
    cell: str
    op: str
    sentence: str
    before: Row | None
    after: Row | None
