"""`python -m kaudit_probes.catalogue --engine NAME --device sm_90`: its paths and their needs, as one JSON line."""

import argparse
import os
import sys

import msgspec

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
        answer: Catalogue | Failed = _asked(arguments.engine, arguments.device, arguments.cell)
    except UserError as error:
        answer = Failed(str(error))
    except ImportError as error:
        answer = Failed(f"{sys.executable}: {error}; install kaudit[torch] there, or name another --python")
    replies.write(msgspec.json.encode(answer) + b"\n")
    replies.flush()
    return 0


def _asked(name: str, device: str, wanted: str | None) -> Catalogue:
    """Raises UserError where the engine cannot be asked so, and ImportError where torch is absent."""
    kind = engines.load(name)
    if engines.states(kind):
        return kind.listed(*devices.facts(device), _cell(wanted) if wanted is not None else None)
    if wanted is not None:
        raise UserError(
            f"--cell: {name} does not state what its paths need; kaudit sweep MATRIX --engine {name} asks it"
        )
    if engines.selects(kind):
        # A selector is made for a GPU; its list of paths is that of them all.
        capability = devices.capability(device)
        if capability is None and device not in ("auto", "cpu", "cuda"):
            raise UserError(f"--device {device}: names no GPU; write sm_90, say, or auto")
        selector = kind(capability or (9, 0))
        return _named(selector, device, {op: [(path, ()) for path in of_op] for op, of_op in selector.paths().items()})
    import torch

    from kaudit_probes.engines import conform  # imports torch

    engine = kind(devices.here(device, torch.cuda.is_available()))
    conform.check_engine(engine)
    return _named(
        engine, device, {op: [(path.name, path.shows) for path in of_op] for op, of_op in engine.paths().items()}
    )


def _named(
    engine: engines.Engine | engines.Selector, device: str, paths: dict[str, list[tuple[str, tuple[str, ...]]]]
) -> Catalogue:
    listed = tuple(Listed(op, path, shows=shows) for op, of_op in paths.items() for path, shows in of_op)
    return Catalogue(engine.name, engine.revision(), False, device, listed)


def _cell(text: str) -> Cell:
    try:
        return Cell.parse(text)
    except ValueError as error:
        raise UserError(f"--cell: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
