"""The bundled reference engine behind the Engine protocol: the one module that imports kaudit_kernels."""

from collections.abc import Iterator, Mapping
from typing import cast

from kaudit.cell import Cell
from kaudit.observation import Refused, Rejection, Skipped, Source, Unmet
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import ANNOUNCER, Decision, NoKernel, decide
from kaudit_kernels.engine import Step, device_facts, ops
from kaudit_kernels.problem import DType, Problem
from kaudit_kernels.revision import revision
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.engines.reference_numbers import computed, poison_slots
from kaudit_probes.numerics import Computed
from kaudit_probes.poison import Poisoning

_Rejections = dict[str, tuple[Rejection, ...]]


class ReferenceEngine:
    name = "reference"
    refusals = (NoKernel,)
    environment = ()

    def __init__(self, device: str) -> None:
        self._device = device
        self._sm, self._sm_count = device_facts(device)

    def revision(self) -> str:
        return revision()

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {
            op: tuple(Path(kernel.name, kernel.functions) for kernel in kernels) for op, kernels in CATALOGUE.items()
        }

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        if cell.dtype == "fp8_e4m3":
            return Skipped("the reference engine has no fp8 weights and activations, only fp8 KV")
        if "cuda_graph" in cell.features:
            return Skipped("the reference engine does not capture CUDA graphs")
        return None

    def prepare(self, cell: Cell) -> "_Call":
        return _Call(cell, problem_of(cell, self._sm, self._sm_count), self._device)

    def announced(self, heard: Heard) -> _Rejections:
        decisions = [record.__dict__["decision"] for record in heard.records if record.name == ANNOUNCER]
        return {decision.op: _rejections(decision, "announced") for decision in decisions}


class _Call:
    def __init__(self, cell: Cell, problem: Problem, device: str) -> None:
        self._cell = cell
        self._problem = problem
        self._step = Step(problem, device)

    def run(self, span: Span) -> None:
        self._step.run(span)

    def claimed(self) -> Mapping[str, str]:
        return {op: decision.chosen.name for op, decision in self._step.decisions.items()}

    def explain(self) -> _Rejections:
        return {op: _rejections(decide(op, self._problem, CATALOGUE), "asked") for op in ops(self._problem)}

    def numbers(self) -> Iterator[Computed]:
        poison_slots(self._step.inputs)
        with Poisoning():
            self._step.run()
        return computed(self._cell, self._step.inputs, self._step.outputs)


def problem_of(cell: Cell, sm: int, sm_count: int) -> Problem:
    """What the dispatcher looks at, for a cell on a GPU of compute capability `sm` (90 is 9.0; 0 is a CPU)."""
    return Problem(
        phase=cell.phase,
        dtype=cast(DType, cell.dtype),  # supports() has skipped fp8
        kv_dtype=cell.kv_dtype,
        q_heads=cell.heads.q,
        kv_heads=cell.heads.kv,
        head_dim=cell.heads.dim,
        v_head_dim=cell.heads.v_dim,
        kv_layout=cell.layout.kind,
        page_size=cell.layout.page,
        mask=cell.mask.kind,
        window=cell.mask.window,
        rope=cell.rope.style,
        rope_scaling=cell.rope.scaling,
        rope_offset=cell.rope.offset,
        features=frozenset(cell.features),
        batch=cell.shape.batch,
        q_len=cell.shape.q_len,
        kv_len=cell.shape.kv_len,
        skew=cell.shape.skew,
        sm=sm,
        sm_count=sm_count,
    )


def _rejections(decision: Decision, source: Source) -> tuple[Rejection, ...]:
    return tuple(
        Rejection(
            rejected.kernel.name,
            source,
            tuple(Unmet(unmet.axis, unmet.seen, unmet.needed, unmet.worth) for unmet in rejected.unmet),
        )
        for rejected in decision.rejected
    )
