"""Cells of FlashInfer's tests."""

from kaudit.cell import Cell
from kaudit_probes.engines.flashinfer_problem import Backend, Problem, problem_of

DECODE = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/none/plain/b2q1k100"
PREFILL = "prefill/bf16/kv-bf16/h32x8x128/paged16/causal/none/plain/b2q64k64"
CUSTOM = PREFILL.replace("causal", "custom")
FP8_KV = PREFILL.replace("kv-bf16", "kv-fp8_e4m3")
ROTATED = PREFILL.replace("/none/", "/neox/")


def problem(cell: str, backend: Backend = "auto") -> Problem:
    found = problem_of(Cell.parse(cell), backend)
    assert isinstance(found, Problem), found
    return found
