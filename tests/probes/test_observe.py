"""What becomes of a cell that does not simply run, when it stands in a batch with others."""

import logging
import threading
from collections.abc import Mapping
from unittest.mock import Mock

import pytest
import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import OUT_OF_MEMORY, Crashed, Ran, Refused, Rejection, Said, Skipped
from kaudit.wire import Closed, FromProbe, Observed, Opened, Poisoned
from kaudit_probes.attribute import Healthy
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.observe import Observer
from kaudit_probes.trace import TraceError


class Refusal(Exception):
    pass


class Toy:
    """One op, two paths. The batch size says what happens."""

    name = "toy"
    refusals = (Refusal,)
    environment = ()

    def revision(self) -> str:
        return "1"

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (Path("fast", ("aten::mm",)), Path("slow", ("aten::bmm",)))}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        return Skipped("not expressible") if cell.shape.batch == 9 else None

    def prepare(self, cell: Cell) -> "ToyCall":
        return ToyCall(cell.shape.batch)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        said = tuple(Said(record.getMessage()) for record in heard.records)
        return {"attention": (Rejection("fast", "announced", said),)} if said else {}


class ToyCall:
    def __init__(self, batch: int) -> None:
        self.batch = batch

    def run(self, span: Span) -> None:
        x = torch.ones(2, 2, 2)
        match self.batch:
            case 2:
                raise Refusal("head_dim=3\nand more at 0x7f00")
            case 3:
                raise RuntimeError("bad pointer 0x7f0012ab")
            case 4:
                raise torch.OutOfMemoryError("2 GiB of 3 GiB")
            case 5:
                return
            case 7:
                raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
            case 8:
                raise ValueError("no file caf\udcff")
        with span("attention"):
            if self.batch == 6:
                logging.getLogger("toy").info("no fast path today")
            if self.batch in (6, 17, 18):
                torch.bmm(x, x)
            elif self.batch == 20:
                aside = threading.Thread(target=torch.softmax, args=(x, -1))
                aside.start()
                aside.join()
            elif self.batch == 21:
                with span("attention"):
                    torch.mm(x[0], x[0])
            else:
                torch.mm(x[0], x[0])

    def claimed(self) -> Mapping[str, str]:
        if self.batch == 18:
            logging.getLogger("toy").info("not fast, since you ask")
        return {"attention": "slow" if self.batch in (17, 18) else "fast"}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        if self.batch == 17:
            raise Refusal("asked too much")
        if self.batch == 19:
            raise torch.OutOfMemoryError("2 GiB of 3 GiB")
        return {}


def cell(batch: int) -> Cell:
    return Cell.parse(f"decode/bf16/kv-bf16/h4x2x64/contiguous/causal/none/plain/b{batch}q1k8")


def observe(*batches: int) -> tuple[Observed, list[FromProbe]]:
    sent: list[FromProbe] = []
    observer = Observer(Toy(), Capture("cpu"), sent.append)  # type: ignore[arg-type] # Toy takes no device
    return observer.observe([cell(batch) for batch in batches]), sent


def test_each_cell_of_a_batch_gets_its_own_outcome() -> None:
    observed, _ = observe(1, 2, 3, 6, 9)
    outcomes = {row.cell: row.outcome for row in observed.rows}
    assert outcomes[cell(2).id] == Refused("head_dim=3")
    assert outcomes[cell(3).id] == Crashed("RuntimeError: bad pointer 0x…")
    assert outcomes[cell(9).id] == Skipped("not expressible")
    match outcomes[cell(1).id], outcomes[cell(6).id]:
        case Ran(path="fast", rejections=()) as right, Ran(path="slow") as lie:
            assert not right.contradiction
            assert lie.contradiction
            assert lie.rejections[0].reasons[0] == Said("no fast path today")
        case found:
            pytest.fail(str(found))
    assert {measure.cell for measure in observed.measures} == {cell(1).id, cell(6).id}


@pytest.mark.parametrize("batch", [4, 7], ids=["torch's", "a library's"])
def test_out_of_memory_is_one_crash_by_whatever_name(batch: int) -> None:
    observed, _ = observe(1, batch)
    outcomes = {row.cell: row.outcome for row in observed.rows}
    assert outcomes[cell(batch).id] == OUT_OF_MEMORY
    assert isinstance(outcomes[cell(1).id], Ran)


def test_what_json_cannot_hold_does_not_cost_the_batch() -> None:
    observed, _ = observe(8)
    assert [row.outcome for row in observed.rows] == [Crashed("ValueError: no file caf?")]


def test_a_cell_that_marks_no_op_is_not_a_cell_where_nothing_happened() -> None:
    observed, _ = observe(5)
    assert observed.redo == {cell(5).id: "the engine marked none of its ops"}
    assert not observed.rows


def test_what_ran_and_cannot_be_explained_was_neither_refused_nor_silent() -> None:
    observed, _ = observe(1, 17)
    outcomes = {row.cell: row.outcome for row in observed.rows}
    match outcomes[cell(17).id]:
        case Ran(path="slow", rejections=(Rejection("fast", "asked", (Said(why),)),)) as shown:
            assert why == "kaudit: it could not be asked: Refusal: asked too much"
            assert not shown.contradiction
        case found:
            pytest.fail(str(found))
    assert isinstance(outcomes[cell(1).id], Ran)


def test_memory_that_asking_finds_no_more_costs_a_cell_its_company_and_not_its_row() -> None:
    in_company, _ = observe(1, 19)
    assert OUT_OF_MEMORY in [row.outcome for row in in_company.rows if row.cell == cell(19).id]
    alone, _ = observe(19)
    assert [row.outcome.path for row in alone.rows if isinstance(row.outcome, Ran)] == ["fast"]


def test_what_asking_for_its_choice_makes_an_engine_say_was_not_announced() -> None:
    observed, _ = observe(18)
    (row,) = observed.rows
    assert isinstance(row.outcome, Ran)
    assert (row.outcome.path, row.outcome.rejections) == ("slow", ())


def test_work_of_another_thread_is_not_nothing() -> None:
    observed, _ = observe(20)
    assert observed.redo == {
        cell(20).id: "attention: 2 launches of the session are another thread's: "
        "it cannot be told for which op they are"
    }
    assert not observed.rows


def test_an_adapter_that_marks_one_op_inside_another_is_at_fault() -> None:
    with pytest.raises(UserError, match=f"the adapter marks attention while attention is open, for {cell(21).id}"):
        observe(21)


def test_a_batch_without_waits_shows_the_same() -> None:
    cells = [cell(1), cell(3), cell(6)]
    observer = Observer(Toy(), Capture("cpu"), lambda _: None)  # type: ignore[arg-type] # Toy takes no device
    assert observer.observe(cells, blocking=False).rows == observer.observe(cells).rows


def test_a_batch_of_no_cells_shows_that_the_profiler_works() -> None:
    assert observe() == (Observed((), (), {}), [])


@pytest.mark.parametrize(
    ("what", "value", "why"),
    [
        ("kaudit_probes.capture.read", Mock(side_effect=TraceError), "the profiler's trace is not whole"),
        (
            "tempfile.mkdtemp",
            Mock(side_effect=OSError(28, "")),
            "the profiler's trace cannot be written: No space left",
        ),
        (
            "kaudit_probes.capture.attribute",
            lambda _, ranges, *__: {ranges[0]: Healthy((), 0.0)},
            "nothing was launch",
        ),
    ],
    ids=["broken", "full", "empty"],
)
def test_a_batch_of_no_cells_tells_that_the_profiler_does_not_work(
    monkeypatch: pytest.MonkeyPatch, what: str, value: object, why: str
) -> None:
    monkeypatch.setattr(what, value)
    with pytest.raises(UserError, match=rf"^the profiler shows nothing here: {why}.*; run kaudit doctor$"):
        observe()
    observe(9)  # is skipped: there is nothing to see


class _Ended(BaseException):
    pass


def test_what_breaks_the_cuda_context_is_told_in_its_words_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends(_: int) -> None:
        raise _Ended

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore at 0x7f00")

    sent: list[FromProbe] = []
    capture = Capture("cpu")
    observer = Observer(Toy(), capture, sent.append)  # type: ignore[arg-type] # Toy takes no device
    monkeypatch.setattr(capture, "synchronize", broken)
    monkeypatch.setattr("os._exit", ends)
    with pytest.raises(_Ended):
        observer.observe([cell(3)])  # which raises something else first
    what = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert sent == [Opened(cell(3).id), Poisoned(cell(3).id, what)]
    sent.clear()
    with pytest.raises(_Ended):
        observer.observe([cell(9)], blocking=False)  # nothing was launched: the wait of the whole batch meets it
    assert sent == [Opened(cell(9).id), Closed()]


def test_the_conductor_knows_at_each_moment_which_cell_is_open() -> None:
    _, sent = observe(1, 2)
    one, two = Opened(cell(1).id), Opened(cell(2).id)
    warm_up, run = [one, Closed(), two, Closed()], [one, Closed()]
    words = [Opened(cell(1).id, "asking it why"), Closed()]
    assert sent == [*warm_up, *run, *words]
