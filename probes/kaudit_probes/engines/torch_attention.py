"""What torch's attention functions have in common: which torch they are of, and what none of them can be told."""

import logging
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager

import torch

from kaudit.cell import Cell, Feature
from kaudit.observation import Rejection, Said
from kaudit_probes.engines import Path

SHORT_QUERY = "short_query_attention"
"""The op of requests so short that the engine's own order of its paths is another one for them."""

UNFUSED = frozenset({"matmul", "softmax"})
"""Roles of the kernels that an attention of ATen's own ops launches, among others."""


def revision() -> str:
    """torch's version and the commit it was built from."""
    return f"{torch.__version__}.g{str(torch.version.git_version)[:12]}"


def untold(cell: Cell, function: str, takes: Set[Feature]) -> str | None:
    """What of the cell has no argument in `function`, which can be told of the features in `takes`; None if all has."""
    if cell.dtype == "fp8_e4m3":
        return f"{function} takes no fp8 q, k and v without the scales that only FlashAttention 3's own op has"
    if cell.kv_dtype != cell.dtype:
        return f"{function} takes k and v of q's dtype, not {cell.kv_dtype}"
    if cell.rope.style != "none":
        return f"{function} takes q and k after RoPE: write rope: none"
    if "cuda_graph" in cell.features:
        return "this adapter captures no CUDA graphs"
    missing = [feature for feature in cell.features if feature not in takes]
    return f"{function} has no argument for {' and '.join(missing)}" if missing else None


def announced_of_fused(
    paths: Mapping[str, tuple[Path, ...]], said: tuple[Said, ...]
) -> Mapping[str, tuple[Rejection, ...]]:
    """What was said of all paths but the last of each op, the unfused one."""
    return {op: tuple(Rejection(path.name, "announced", said) for path in of_op[:-1]) for op, of_op in paths.items()}


@contextmanager
def overhearing(logger: str, level: int, hear: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Has `hear` told each record of the logger from `level` on, which nobody else hears: it was not said to them."""
    named = logging.getLogger(logger)
    handler = logging.Handler()
    handler.emit = hear  # type: ignore[method-assign, assignment]
    before = named.level, named.propagate
    named.addHandler(handler)
    named.setLevel(level)
    named.propagate = False
    try:
        yield
    finally:
        named.removeHandler(handler)
        named.setLevel(before[0])
        named.propagate = before[1]
