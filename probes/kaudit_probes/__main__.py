"""The probe process: cells in, observations out, on pipes of their own. Standard output belongs to the engine."""

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.wire import Batch, Failed, FromProbe, Hello, Note, Observed

Observe = Callable[[Sequence[Cell], bool], Observed]
"""What serves the cells of a batch; whether it is blocking."""


def main() -> int:
    arguments = _arguments()
    _die_with_parent()
    faulthandler.enable()

    replies = os.fdopen(arguments.out_fd, "wb")
    os.register_at_fork(after_in_child=partial(_fall_silent, (arguments.in_fd, arguments.out_fd)))

    def send(message: FromProbe) -> None:
        replies.write(encoded(message) + b"\n")
        replies.flush()

    try:
        observe, hello = _begin(arguments, send)
    except UserError as error:
        send(Failed(str(error)))
        return 0
    except ImportError as error:
        send(Failed(f"{sys.executable}: {error}; mend its installation, or name another --python"))
        return 0
    send(hello)
    with os.fdopen(arguments.in_fd, "rb") as requests:
        for line in requests:
            batch = msgspec.json.decode(line, type=Batch)
            try:
                send(observe([Cell.parse(cell) for cell in batch.cells], batch.blocking))
            except UserError as error:
                send(Failed(str(error)))
                return 0
    return 0


def encoded(message: FromProbe) -> bytes:
    """As JSON, which cannot hold half of a surrogate pair. An engine's words can: a question mark stands for it."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(message), ensure_ascii=False).encode(errors="replace")
        return msgspec.json.encode(json.loads(text))  # where json has written NaN, null


def _begin(arguments: argparse.Namespace, send: Callable[[FromProbe], None]) -> tuple[Observe, Hello]:
    """What serves the cells, and what it is. Raises UserError, and ImportError where what kaudit needs is absent."""
    # Only here: the profiler and the stamp import torch, and it may be absent.
    from kaudit_probes.engines import require_torch

    require_torch()
    import torch

    from kaudit_probes import devices, engines, predict, stamp
    from kaudit_probes.capture import Capture
    from kaudit_probes.engines import conform
    from kaudit_probes.observe import Observer
    from kaudit_probes.timing import Timer

    kind = engines.load(arguments.engine)
    if engines.selects(kind):
        for option in ("numerics", "timing"):
            if getattr(arguments, option):
                what = f"--engine {arguments.engine} predicts and runs nothing"
                raise UserError(f"--{option}: {what}; leave out one of them")
        predictor, hello = predict.begin(kind, arguments.engine, arguments.device, send)
        return lambda cells, _: predictor.observe(cells), hello
    device = devices.here(arguments.device, torch.cuda.is_available())
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
    capture = Capture(device)
    timer = Timer(capture, arguments.timing) if arguments.timing else None
    return Observer(engine, capture, send, arguments.numerics, timer).observe, hello


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kaudit_probes")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--numerics", action="store_true")
    parser.add_argument("--timing", type=float, metavar="SECONDS", default=0.0)
    parser.add_argument("--in-fd", type=int, required=True)
    parser.add_argument("--out-fd", type=int, required=True)
    return parser.parse_args()


def _fall_silent(pipes: tuple[int, int]) -> None:
    """A process that a cell forked is not the probe: it must not speak to the sweep, nor take cells from it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for pipe in pipes:
        os.dup2(nowhere, pipe)
    os.close(nowhere)


def _die_with_parent() -> None:
    """A sweep that is killed -9 must not leave a probe that holds the GPU."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
