"""What an engine's paths need, and which of them it would take: asked of the engine's own code, and nothing is run."""

from msgspec import Struct

from kaudit.asking import answers
from kaudit.errors import UserError
from kaudit.observation import Unmet
from kaudit.wire import Failed


class Listed(Struct, frozen=True, omit_defaults=True):
    """A path, as its engine states it.

    `requires`: what it needs to be right and to launch. `worth`: what makes it faster than the next. `shows`: regular
    expressions of the kernels that prove it; `also`: of those that it launches in some cells only. `unmet`: what of all
    that the cell does not meet; where none is asked for, what no cell on the device meets.
    """

    op: str
    path: str
    requires: tuple[str, ...] = ()
    worth: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    also: tuple[str, ...] = ()


class Catalogue(Struct, frozen=True, tag="catalogue", omit_defaults=True):
    """Paths per op, fastest first. `device`: that it speaks of, as `sm_90 with 132 SMs`; empty if it is true of all.

    `stated`: whether the engine says what its paths need. `ops`: those that the cell has. `refused`: why the engine
    does not run the cell; then nothing is said of its ops.
    """

    engine: str
    revision: str
    stated: bool
    device: str
    paths: tuple[Listed, ...]
    cell: str = ""
    ops: tuple[str, ...] = ()
    refused: str = ""

    def of(self, op: str) -> tuple[Listed, ...]:
        return tuple(each for each in self.paths if each.op == op)

    def chosen(self, op: str) -> Listed | None:
        """The first path that the cell meets all of; None where it has no such op."""
        return next((each for each in self.of(op) if not each.unmet), None) if op in self.ops else None


def catalogue(python: str, engine: str, device: str, cell: str | None, op: str | None) -> Catalogue:
    """Raises UserError where the engine cannot be asked, or has no such op."""
    arguments = ["--engine", engine, "--device", device, *(["--cell", cell] if cell is not None else [])]
    told = answers(python, "ask for its paths", Catalogue | Failed, "kaudit_probes.catalogue", *arguments)  # type: ignore[arg-type]
    match told[-1]:
        case Failed(fault):
            raise UserError(fault)
        case Catalogue() as found if op is None or found.of(op):
            return found
        case found:
            ops = ", ".join(dict.fromkeys(each.op for each in found.paths))
            raise UserError(f'no op "{op}" in {engine}; name one of {ops}')
