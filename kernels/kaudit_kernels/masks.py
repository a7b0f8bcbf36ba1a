"""Which keys each query of a request sees, as a boolean tensor. The one place where every mask is written down."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kaudit_kernels.problem import Mask, Problem


@dataclass(frozen=True)
class Packed:
    """The masks of a batch as bits, 8 keys to an octet, the first in the lowest bit; each row begins a new octet."""

    bits: Tensor
    """[octets] uint8: per request its queries' rows, of all keys; under `tree` of the last q_len keys only."""
    start: Tensor
    """[batch] int64: the first octet of each request."""


class Masks:
    """The masks of a problem's requests: made when first asked for, since only paths without a fused mask ask.

    Requests of equal lengths share one tensor, except under `custom`, where every request has its own.
    """

    def __init__(self, problem: Problem, device: str, seed: int) -> None:
        self._problem, self._device, self._seed = problem, device, seed
        self._lens = tuple(zip(problem.q_lens, problem.kv_lens, strict=True))  # once: each asking makes them all
        self._made: dict[tuple[int, int, int], Tensor] = {}
        self._packed: Packed | None = None

    def of(self, request: int) -> Tensor | None:
        """[q_len, kv_len] of a request, True where the query sees the key; None if every query sees every key."""
        problem = self._problem
        q_len, kv_len = self._lens[request]
        if sees_all(problem.mask, problem.window, q_len, kv_len):
            return None
        key = (q_len, kv_len, request if problem.mask == "custom" else 0)
        if key not in self._made:
            seed = self._seed + request
            self._made[key] = visible(problem.mask, problem.window, q_len, kv_len, seed).to(self._device)
        return self._made[key]

    def packed(self) -> Packed:
        """The masks of every request for a kernel that reads them. Made once: later calls launch nothing."""
        if self._packed is None:
            problem, rows = self._problem, []
            for request, (q_len, kv_len) in enumerate(self._lens):
                seen = self.of(request)
                if seen is None:
                    seen = torch.ones(q_len, kv_len, dtype=torch.bool, device=self._device)
                rows.append(_octets(seen[:, kv_len - q_len :] if problem.mask == "tree" else seen))
            *starts, _ = accumulate((len(each) for each in rows), initial=0)
            self._packed = Packed(torch.cat(rows), torch.tensor(starts).to(self._device))
        return self._packed


def _octets(seen: Tensor) -> Tensor:
    """[rows * ceil(keys / 8)] uint8 of a boolean [rows, keys]."""
    padded = torch.nn.functional.pad(seen, (0, -seen.shape[1] % 8))
    padded = padded.view(padded.numel() // 8, 8)
    weights = 1 << torch.arange(8, device=seen.device)
    return (padded * weights).sum(dim=1).to(torch.uint8)


def sees_all(mask: Mask, window: int, q_len: int, kv_len: int) -> bool:
    """Whether a mask of these lengths hides nothing."""
    match mask:
        case "none":
            return True
        case "causal" | "tree":
            return q_len == 1
        case "window":
            return q_len == 1 and kv_len <= window
        case "custom":
            return False


def visible(mask: Mask, window: int, q_len: int, kv_len: int, seed: int) -> Tensor:
    """[q_len, kv_len], True where the query sees the key. Queries are the last q_len of the kv_len tokens."""
    own = torch.arange(kv_len - q_len, kv_len)[:, None]
    keys = torch.arange(kv_len)[None, :]
    match mask:
        case "none":
            return torch.ones(q_len, kv_len, dtype=torch.bool)
        case "causal":
            return keys <= own
        case "window":
            return (keys <= own) & (keys > own - window)
        case "custom":
            # Half of the keys at random, and always the query's own: a query that sees nothing has no defined output.
            random = torch.rand(q_len, kv_len, generator=torch.Generator().manual_seed(seed)) < 0.5
            return random | (keys == own)
        case "tree":
            prefix = torch.ones(q_len, kv_len - q_len, dtype=torch.bool)
            return torch.cat((prefix, _ancestry(q_len)), dim=1)


def _ancestry(nodes: int) -> Tensor:
    """[nodes, nodes] of a binary tree in heap order, True where the column is the row's node or an ancestor of it."""
    sees = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):
        sees[node] |= sees[(node - 1) // 2]
    return sees


def depths(nodes: int) -> Tensor:
    """[nodes]: ancestors of each node of the tree, which is how far behind the prefix its token stands."""
    return _ancestry(nodes).sum(dim=1) - 1
