"""The probe process: cells in, observations out, on pipes of their own. Standard output belongs to the engine."""

import argparse
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.wire import Batch, Failed, FromProbe, Hello, Note

if TYPE_CHECKING:
    from kaudit_probes.observe import Observer
    from kaudit_probes.predict import Predictor


def main() -> int:
    arguments = _arguments()
    _die_with_parent()
    faulthandler.enable()

    replies = os.fdopen(arguments.out_fd, "wb")

    def send(message: FromProbe) -> None:
        replies.write(msgspec.json.encode(message) + b"\n")
        replies.flush()

    try:
        observer, hello = _begin(arguments, send)
    except UserError as error:
        send(Failed(str(error)))
        return 0
    except ImportError as error:
        send(Failed(f"{sys.executable}: {error}; install kaudit[torch] there, or name another --python"))
        return 0
    send(hello)
    with os.fdopen(arguments.in_fd, "rb") as requests:
        for line in requests:
            batch = msgspec.json.decode(line, type=Batch)
            try:
                send(observer.observe([Cell.parse(cell) for cell in batch.cells]))
            except UserError as error:
                send(Failed(str(error)))
                return 0
    return 0


def _begin(arguments: argparse.Namespace, send: Callable[[FromProbe], None]) -> "tuple[Observer | Predictor, Hello]":
    """What serves the cells, and what it is. Raises UserError, and ImportError where torch is absent."""
    import torch

    # Only here: engines, the profiler and the stamp import torch, and it may be absent.
    from kaudit_probes import engines, predict, stamp
    from kaudit_probes.capture import Capture
    from kaudit_probes.engines import conform
    from kaudit_probes.observe import Observer

    kind = engines.load(arguments.engine)
    if engines.selects(kind):
        if arguments.numerics:
            raise UserError(f"--numerics: --engine {arguments.engine} predicts and runs nothing; leave out one of them")
        return predict.begin(kind, arguments.engine, arguments.device, send)
    device = _device(arguments.device, torch.cuda.is_available())
    engine = kind(device)
    conform.check_engine(engine)
    torch.set_warn_always(True)
    send(Note("starting the profiler (some seconds, once per process)"))
    hello = Hello(
        engine.name,
        engine.revision(),
        stamp.device(device),
        stamp.versions(device),
        stamp.environment(engine.environment) | dict(engine.switches()),
        engines.names(engine.paths()),
    )
    return Observer(engine, Capture(device), send, arguments.numerics), hello


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kaudit_probes")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--numerics", action="store_true")
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    return parser.parse_args()


def _device(asked: str, cuda: bool) -> str:
    if asked not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {asked}: only an engine that predicts takes a GPU's name; write auto, cpu or cuda")
    if asked == "cuda" and not cuda:
        raise UserError("--device cuda: torch sees no CUDA device; check the driver, or use --device cpu")
    return "cuda" if cuda and asked != "cpu" else "cpu"


def _die_with_parent() -> None:
    """A sweep that is killed -9 must not leave a probe that holds the GPU."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
