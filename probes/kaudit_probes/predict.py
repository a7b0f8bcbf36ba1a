"""Asks an engine's selector what it would run: the Observer's sibling, without a profiler, kernels or a GPU."""

from collections.abc import Callable, Sequence

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import WHOLE_CELL, Row, Unseen
from kaudit.table import Device
from kaudit.wire import Closed, FromProbe, Hello, Observed, Opened
from kaudit_probes import stamp
from kaudit_probes.devices import capability
from kaudit_probes.engines import Selector
from kaudit_probes.failures import named
from kaudit_probes.listen import forget_output


class Predictor:
    """`send` carries at once what the conductor must know."""

    def __init__(self, selector: Selector, send: Callable[[FromProbe], None]) -> None:
        self._selector = selector
        self._send = send

    def observe(self, cells: Sequence[Cell]) -> Observed:
        rows = tuple(self._row(cell) for cell in cells)
        forget_output()
        return Observed(rows, (), {})

    def _row(self, cell: Cell) -> Row:
        self._send(Opened(cell.id))
        try:
            op, outcome = self._selector.predict(cell)
        except UserError:  # an adapter's mistake is no outcome
            raise
        except Exception as error:
            # On the GPU it might have answered: this says nothing of the cell.
            op, outcome = WHOLE_CELL, Unseen(f"the selector cannot be asked here: {named(error)}")
        self._send(Closed())
        return Row(cell.id, op, outcome)


def begin(
    kind: Callable[[tuple[int, int]], Selector], name: str, device: str, send: Callable[[FromProbe], None]
) -> tuple[Predictor, Hello]:
    """Raises UserError where `device` names no GPU, or the engine cannot be asked here."""
    gpu = capability(device)
    if gpu is None:
        raise UserError(f"--engine {name} runs nothing and predicts for a GPU; name that, as in --device sm_90")
    selector = kind(gpu)
    hello = Hello(
        selector.name,
        selector.revision(),
        Device(f"predicted {device}", device, 0, "none", predicted=True),
        stamp.versions("cpu"),
        stamp.environment(selector.environment) | dict(selector.switches()),
        dict(selector.paths()),
    )
    return Predictor(selector, send), hello
