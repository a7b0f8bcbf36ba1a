"""The `kernels` fixture of pytest: one profiler session around a block of a test."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal, get_args

import pytest
import torch

from kaudit.observation import Kernel, Ran, Rejection
from kaudit_probes.attribute import Healthy, Unhealthy, Verdict
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Heard, Path
from kaudit_probes.listen import Listener
from kaudit_probes.recording import recording
from kaudit_probes.rows import graph_mode, has_roles, path_shown
from kaudit_probes.seen import Block, Seen, Unseen
from kaudit_probes.stamp import device as stamped

DeviceKind = Literal["cuda", "cpu"]
Announced = Callable[[Heard], Sequence[Rejection]]

_CELL, _OP = "test", "block"


class Blocks:
    """Hands out blocks to watch. `captures`: the primed profiler of each device, kept for the whole run of pytest."""

    def __init__(self, captures: dict[str, Capture], test: pytest.Item) -> None:
        self._captures = captures
        self._test = test

    @contextmanager
    def __call__(
        self, *, paths: Sequence[Path] = (), announced: Announced | None = None, device: DeviceKind | None = None
    ) -> Iterator[Seen]:
        """Watch the block: run it once, warmed up, with one op of the engine in it.

        `paths`: the engine's, fastest first. `announced`: reads the engine's reasons from what it logs and warns in the
        block. `device`: "cuda" or "cpu", by default the GPU where there is one.

        Raises Unseen if the capture cannot vouch for the block, RuntimeError if a profiler runs already, ValueError for
        arguments that do not go together.
        """
        _check(paths, announced, device)
        if recording():
            raise RuntimeError("kernels() inside another kernels() or torch.profiler: only one profiler can run")
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        capture = self._captures.get(kind) or self._captures.setdefault(kind, Capture(kind))
        seen, listener = Seen(), Listener()
        with capture.session() as session, ExitStack() as stack:
            if announced:
                stack.enter_context(listener.listening())
            stack.enter_context(session.span(_CELL)(_OP))
            yield seen
        rejections = tuple(announced(listener.heard())) if announced else ()
        (verdict,) = session.verdicts[_CELL][_OP]
        ran = _ran(_vouched(verdict), paths, rejections)
        seen.end(Block(ran, tuple(path.name for path in paths), stamped(kind).arch if capture.on_gpu else ""))
        self._test.add_report_section("call", "kaudit", f"{self._test.name}, on {kind}\n{seen.table()}")


def _check(paths: Sequence[Path], announced: Announced | None, device: DeviceKind | None) -> None:
    if announced and not paths:
        raise ValueError("announced= reads reasons against paths: give paths=, too")
    if any(path.fits for path in paths):
        raise ValueError("paths with `fits` are told apart by the cell, which a test has not: sweep them instead")
    if device not in (None, *get_args(DeviceKind)):
        raise ValueError(f'device is "cuda" or "cpu", not {device!r}')


def _vouched(verdict: Verdict) -> tuple[Kernel, ...]:
    match verdict:
        case Healthy(kernels):
            return kernels
        case Unhealthy(why):
            raise Unseen(f"what the block ran is not known: {why}")


def _ran(kernels: tuple[Kernel, ...], paths: Sequence[Path], rejections: tuple[Rejection, ...]) -> Ran:
    shown = path_shown([kernel.name for kernel in kernels], paths, lambda path: has_roles(path, kernels))
    return Ran(shown, kernels, rejections=rejections, graph_got=graph_mode(kernels))
