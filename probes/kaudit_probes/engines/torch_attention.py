"""What torch's attention functions have in common: which torch they are of, and what none of them can be told."""

from collections.abc import Set

import torch

from kaudit.cell import Cell, Feature


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
