"""From what a call hands over to the verdict in its row and the figures in its measure."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from kaudit.cell import Cell
from kaudit.cli import app
from kaudit.errors import UserError
from kaudit.measure import read_numbers
from kaudit.observation import Ran
from kaudit.table import read
from kaudit.wire import Observed
from kaudit_probes import __main__ as probe
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Path, Span
from kaudit_probes.numerics import Computed
from kaudit_probes.observe import Observer

ONE = Cell.parse("decode/bf16/kv-bf16/h4x2x64/contiguous/causal/none/plain/b1q1k8")
TWO = Cell.parse("decode/bf16/kv-bf16/h4x2x64/contiguous/causal/none/plain/b2q1k8")
ONES = torch.ones(2, 2)


class Toy:
    name, refusals, environment = "toy", (), ()

    def __init__(self, numbers: Callable[[], Iterable[Computed]] | None) -> None:
        self.numbers = numbers

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (Path("only"),), "o_proj": (Path("only"),)}

    def supports(self, cell: Cell) -> None:  # noqa: ARG002
        return None

    def prepare(self, cell: Cell) -> Any:  # noqa: ARG002
        def run(span: Span) -> None:
            for op in self.paths():
                with span(op):
                    torch.mm(ONES, ONES)

        call = SimpleNamespace(run=run, claimed=dict, explain=dict)
        if self.numbers is not None:
            call.numbers = self.numbers
        return call

    def announced(self, heard: object) -> dict[str, Any]:  # noqa: ARG002
        return {}


def observed(numbers: Callable[[], Iterable[Computed]] | None, *cells: Cell, asked: bool = True) -> Observed:
    toy: Any = Toy(numbers)
    return Observer(toy, Capture("cpu"), lambda _: None, asked).observe(cells or (ONE,))


def told(found: Observed) -> dict[str, tuple[str, str | None]]:
    """By op, the verdict and the hint."""
    hints = {measure.op: measure.numbers and measure.numbers.hint for measure in found.measures}
    return {row.op: (row.outcome.numerics, hints[row.op]) for row in found.rows if isinstance(row.outcome, Ran)}


def gives(got: torch.Tensor) -> list[Computed]:
    return [Computed("attention", got, lambda: 2 * ONES), Computed("attention", 2 * ONES, lambda: 2 * ONES)]


def raises(error: Exception) -> list[Computed]:
    raise error


def without_memory() -> torch.Tensor:
    raise torch.OutOfMemoryError("2 GiB of 3 GiB")


def test_the_worst_output_of_an_op_is_its_verdict_and_other_ops_are_unchecked() -> None:
    assert told(observed(lambda: gives(2 * ONES))) == {"attention": ("ok", ""), "o_proj": ("unchecked", None)}
    assert told(observed(lambda: gives(ONES)))["attention"] == ("wrong", "")


def test_nothing_is_checked_unasked_or_of_a_call_that_hands_nothing_over() -> None:
    unchecked = {"attention": ("unchecked", None), "o_proj": ("unchecked", None)}
    assert told(observed(partial(raises, AssertionError("ran")), asked=False)) == unchecked
    assert told(observed(None)) == unchecked
    assert told(observed(list)) == unchecked


def test_a_run_that_fails_after_its_kernels_were_seen_leaves_the_result_unknown() -> None:
    found = told(observed(partial(raises, RuntimeError("bad luck"))))
    assert found["attention"] == ("unchecked", "run again, it crashed (RuntimeError: bad luck)")


@pytest.mark.parametrize(
    "numbers",
    [
        partial(raises, torch.OutOfMemoryError("2 GiB of 3 GiB")),
        lambda: [Computed("attention", ONES, without_memory)],
    ],
    ids=["run", "oracle"],
)
def test_no_memory_beside_others_is_redone_and_alone_it_is_unknown(numbers: Callable[[], list[Computed]]) -> None:
    together = observed(numbers, ONE, TWO)
    assert together.redo.keys() == {ONE.id, TWO.id}
    assert not together.rows
    assert told(observed(numbers))["attention"] == ("unchecked", "no memory to check it")


@pytest.mark.parametrize(
    ("computed", "fault"),
    [
        ("text", "not what an op Computed"),
        (Computed("sample", ONES, lambda: ONES), "'sample', which paths() does not list"),
    ],
)
def test_an_adapter_that_hands_over_something_else_is_told(computed: Any, fault: str) -> None:
    with pytest.raises(UserError) as raised:
        observed(lambda: [computed])
    assert fault in str(raised.value)


def test_an_engine_that_runs_nothing_has_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaudit_probes.engines.selects", lambda _: True)
    arguments: Any = SimpleNamespace(engine="reference", device="sm_90", numerics=True)
    with pytest.raises(UserError, match="--numerics: --engine reference predicts"):
        probe._begin(arguments, lambda _: None)


def test_a_sweep_with_numerics_tells_them_in_table_measures_summary_and_story(tmp_path: FilePath) -> None:
    out = tmp_path / "t.jsonl"
    swept = CliRunner().invoke(
        app, ["sweep", "smoke", "--only", "decode/fp32/*", "--device", "cpu", "--numerics", "--out", str(out)]
    )
    assert swept.exit_code == 0, swept.output
    rows = read(out).rows
    assert "results: " in swept.output
    assert {row.outcome.numerics for row in rows.values() if isinstance(row.outcome, Ran)} == {"ok"}
    assert read_numbers(out).keys() == rows.keys()
    story = CliRunner().invoke(app, ["show", str(out), "--cell", next(iter(rows))[0]]).output
    assert "numerics: ok" in story
    assert "right up to" in story
