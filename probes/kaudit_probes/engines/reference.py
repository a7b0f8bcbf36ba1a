"""The bundled reference engine behind the Engine protocol: the one module that imports kaudit_kernels."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from kaudit.catalogue import Catalogue, Listed
from kaudit.cell import Cell
from kaudit.observation import WHOLE_CELL, Refused, Rejection, Skipped, Source, Unmet
from kaudit_kernels import graph, requirements
from kaudit_kernels.admission import Inadmissible, admit
from kaudit_kernels.catalogue import CATALOGUE
from kaudit_kernels.dispatch import ANNOUNCER, Decision, Kernel, NoKernel, decide
from kaudit_kernels.engine import Step, device_facts, ops
from kaudit_kernels.problem import Problem
from kaudit_kernels.revision import revision
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.engines.reference_numbers import computed, distribution, kept_rows, poison_slots
from kaudit_probes.graphs import Graphed, Ungraphed
from kaudit_probes.numerics import Computed
from kaudit_probes.poison import Poisoning, poison

_Rejections = dict[str, tuple[Rejection, ...]]


class ReferenceEngine:
    name = "reference"
    refusals = (NoKernel, Inadmissible)
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
            op: tuple(Path(kernel.name, kernel.functions, kernel.also) for kernel in kernels)
            for op, kernels in CATALOGUE.items()
        }

    @staticmethod
    def listed(sm: int, sm_count: int, cell: Cell | None) -> Catalogue:
        """Of the Stating protocol."""
        device = f"sm_{sm} with {sm_count} SMs" if sm else "cpu"
        if cell is None:
            return Catalogue("reference", revision(), True, device, _listed(lambda kernel: kernel.never(sm)))
        problem = problem_of(cell, sm, sm_count)
        # What is decided on is what would be launched, with the padding of a CUDA graph.
        launched = graph.launched(problem)
        try:
            admit(problem)
            for op in ops(problem):
                decide(op, launched, CATALOGUE)
        except ReferenceEngine.refusals as error:
            return Catalogue("reference", revision(), True, device, _listed(), cell.id, refused=str(error))
        paths = _listed(lambda kernel: kernel.unmet(launched))
        return Catalogue("reference", revision(), True, device, paths, cell.id, ops(problem))

    def supports(self, cell: Cell) -> Refused | Skipped | None:  # noqa: ARG002 - it expresses every cell
        return None

    def prepare(self, cell: Cell) -> "_Call":
        return _Call(cell, problem_of(cell, self._sm, self._sm_count), self._device)

    def announced(self, heard: Heard) -> _Rejections:
        said = [record.__dict__ for record in heard.records if record.name == ANNOUNCER]
        decisions = [one["decision"] for one in said if "decision" in one]
        return {decision.op: _rejections(decision, "announced") for decision in decisions}


class _Call:
    def __init__(self, cell: Cell, problem: Problem, device: str) -> None:
        self._cell = cell
        self._step = Step(problem, device)

    def run(self, span: Span) -> None:
        step = self._step
        if not step.capturable:
            step.run(span)
            return
        if step.captured is None:
            step.run()
            step.capture()
        with span(WHOLE_CELL):
            step.replay()

    def outline(self, span: Span) -> None:
        self._step.run(span)

    def graph(self) -> Graphed | Ungraphed | None:
        step, problem = self._step, self._step.launched.problem
        if step.captured is not None:
            return Graphed(step.captured.replays, problem.batch, problem.padding, step.captured.pool_bytes)
        return Ungraphed(_unmet(step.ungraphed)) if step.ungraphed else None

    def claimed(self) -> Mapping[str, str]:
        return {op: decision.chosen.name for op, decision in self._step.decisions.items()}

    def explain(self) -> _Rejections:
        problem = self._step.launched.problem
        return {op: _rejections(decide(op, problem, CATALOGUE), "asked") for op in ops(problem)}

    def gemms(self) -> Mapping[str, tuple[int, int, int]]:
        """M, N and K of each projection: for the manifest of its times."""
        p = self._step.launched.problem
        return {
            "qkv_proj": (p.tokens, p.qkv_width, p.hidden),
            "o_proj": (p.tokens, p.hidden, p.attention_width),
            "gate_up_proj": (p.tokens, p.gate_up_width, p.hidden),
            "down_proj": (p.tokens, p.hidden, p.intermediate),
        }

    def numbers(self) -> Iterator[Computed]:
        step = self._step
        strayed = kept_rows(step.launched.cache)  # with padding, whose tokens have a row of their own
        poison_slots(step.inputs)
        if step.captured is None:
            with Poisoning():
                step.run()
        else:
            for output in step.captured.outputs.values():
                if output.is_contiguous():
                    poison(output)
            step.replay()
        yield strayed()
        yield from computed(self._cell, step.inputs, step.outputs)
        yield from distribution(self._cell, step.inputs, step.decisions["sample"].chosen.launch)


def problem_of(cell: Cell, sm: int, sm_count: int) -> Problem:
    """What the dispatcher looks at, for a cell on a GPU of compute capability `sm` (90 is 9.0; 0 is a CPU)."""
    return Problem(
        phase=cell.phase,
        dtype="bf16" if cell.dtype == "fp8_e4m3" else cell.dtype,  # fp8 is for projections alone, as in what is served
        weight_dtype=cell.dtype,
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


def _listed(unmet: Callable[[Kernel], Iterable[requirements.Unmet]] = lambda _: ()) -> tuple[Listed, ...]:
    """All kernels, each with what is not met of it."""
    return tuple(
        Listed(
            op,
            kernel.name,
            tuple(map(str, kernel.requires)),
            tuple(map(str, kernel.worth)),
            kernel.functions,
            _unmet(unmet(kernel)),
            kernel.also,
        )
        for op, kernels in CATALOGUE.items()
        for kernel in kernels
    )


def _unmet(found: Iterable[requirements.Unmet]) -> tuple[Unmet, ...]:
    return tuple(Unmet(unmet.axis, unmet.seen, unmet.needed, unmet.worth) for unmet in found)


def _rejections(decision: Decision, source: Source) -> tuple[Rejection, ...]:
    return tuple(Rejection(rejected.kernel.name, source, _unmet(rejected.unmet)) for rejected in decision.rejected)
