"""`python -m kaudit_probes.catalogue --engine NAME --device sm_90`: its paths and their needs, as one JSON line."""

import argparse
import os
import sys

import msgspec
from msgspec.structs import replace

from kaudit.applicable import inapplicable
from kaudit.catalogue import Catalogue, Listed
from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.wire import Failed
from kaudit_probes import devices, engines


def main() -> int:
    parser = argparse.ArgumentParser(prog="kaudit_probes.catalogue")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--cell")
    arguments = parser.parse_args()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        answer: Catalogue | Failed = asked(arguments.engine, arguments.device, arguments.cell)
    except UserError as error:
        answer = Failed(str(error))
    except ImportError as error:
        answer = Failed(f"{sys.executable}: {error}; install kaudit[torch] there, or name another --python")
    replies.write(msgspec.json.encode(answer) + b"\n")
    replies.flush()
    return 0


def asked(name: str, device: str, wanted: str | None) -> Catalogue:
    """Raises UserError where the engine cannot be asked so, and ImportError where torch is absent."""
    kind = engines.load(name)
    if engines.states(kind):
        cell = _cell(wanted) if wanted is not None else None
        found = kind.listed(*devices.facts(device), cell)
        return found if cell or device != "auto" else _of_any_device(found)
    if wanted is not None:
        raise UserError(
            f"--cell: {name} does not state what its paths need; kaudit sweep MATRIX --engine {name} asks it"
        )
    if engines.selects(kind):
        gpu = "sm_90" if device == "auto" else device
        capability = devices.capability(gpu)
        if capability is None:
            raise UserError(f"--device {device}: names no GPU; write sm_90, say, or auto")
        selector = kind(capability)
        listed = [Listed(op, path) for op, of_op in selector.paths().items() for path in of_op]
        return Catalogue(selector.name, selector.revision(), False, gpu, tuple(listed))
    import torch

    from kaudit_probes.engines import conform  # imports torch

    here = devices.here(device, torch.cuda.is_available())
    engine = kind(here)
    conform.check_engine(engine)
    listed = [
        Listed(op, path.name, shows=path.shows, also=path.also)
        for op, of_op in engine.paths().items()
        for path in of_op
    ]
    return Catalogue(engine.name, engine.revision(), False, here, tuple(listed))


def _of_any_device(found: Catalogue) -> Catalogue:
    """No device was named, and what the one here lacks is no property of a path."""
    return replace(found, device="", paths=tuple(replace(path, unmet=()) for path in found.paths))


def _cell(text: str) -> Cell:
    """Raises UserError for one that no sweep runs, too: what would serve it is no question."""
    try:
        cell = Cell.parse(text)
    except ValueError as error:
        raise UserError(f"--cell: {error}") from None
    if why := inapplicable(cell):
        raise UserError(f"--cell {cell.id}: no sweep runs it: {why}; name another cell")
    return cell


if __name__ == "__main__":
    sys.exit(main())
