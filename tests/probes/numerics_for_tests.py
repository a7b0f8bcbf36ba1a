"""Cells of the reference engine, and what the check of their results says."""

from typing import Any

import torch

from kaudit.cell import Cell
from kaudit_probes.engines.reference import ReferenceEngine
from kaudit_probes.numerics import Checked, check

PAGED = "decode/bf16/kv-bf16/h4x2x64/paged16/{mask}/neox/{features}/b2q1k100"
NARROW = PAGED.replace("kv-bf16", "kv-int8").format(mask="causal", features="plain")
WINDOW = PAGED.format(mask="window32", features="plain")
PLAIN = PAGED.format(mask="causal", features="plain")


def checked(cell: str, device: str = "cpu", engine: Any = ReferenceEngine) -> dict[str, Checked]:
    call = engine(device).prepare(Cell.parse(cell))
    call.run(lambda _: torch.inference_mode())
    found = check(call.numbers())
    assert found is not None
    return found
