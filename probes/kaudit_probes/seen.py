"""What a test saw of one block: its kernels, and what they say of the path that was taken."""

from collections.abc import Iterator
from dataclasses import dataclass

from kaudit.launches import short
from kaudit.observation import UNCLASSIFIED, Kernel, Ran, Rejection
from kaudit.report.columns import aligned
from kaudit_probes.fallbacks import Fallback, fallbacks


class Unseen(Exception):
    """The block ran, but the capture cannot vouch for what ran in it: neither a pass nor a fallback."""


@dataclass(frozen=True)
class Block:
    """A block that has ended. `paths`: names of the engine's paths, fastest first; none if the test gave none.
    `arch` is the GPU's, "sm_90"; "" on a CPU."""

    ran: Ran
    paths: tuple[str, ...]
    arch: str


class Seen:
    """Of the kernels that a block ran, once it has ended; before that, every question raises RuntimeError."""

    def __init__(self) -> None:
        self._block: Block | None = None

    def end(self, block: Block) -> None:
        self._block = block

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """In order of first launch, with counts; on a CPU, leaf ATen ops."""
        return self._ended().ran.kernels

    @property
    def names(self) -> tuple[str, ...]:
        """Raw, as the profiler gives them, each once."""
        return tuple(dict.fromkeys(kernel.name for kernel in self.kernels))

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kernel.family for kernel in self.kernels))

    @property
    def unclassified(self) -> tuple[Kernel, ...]:
        """Kernels that no family is known for."""
        return tuple(kernel for kernel in self.kernels if kernel.family == UNCLASSIFIED)

    @property
    def launches(self) -> int:
        return self._ended().ran.launches

    def family(self, role: str) -> str:
        """The one family that served `role` ("attention", "matmul", "norm"…). Raises AssertionError if none or several
        did. An unclassified kernel has no role: `unclassified` and `fallbacks` name it."""
        __tracebackhide__ = True
        families = tuple(dict.fromkeys(kernel.family for kernel in self.kernels if kernel.role == role))
        if len(families) == 1:
            return families[0]
        found = " and ".join(families) or "no kernel"
        raise AssertionError(f"{found} served {role}, needs one family: {self!r}")

    @property
    def path(self) -> str | None:
        """The path that ran, by its kernels; None if it is none of those listed. Raises ValueError without `paths`."""
        if not self._ended().paths:
            raise ValueError("no path is known without kernels(paths=...)")
        return self._ended().ran.path

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """What the engine announced of its paths in the block, as `announced` read it."""
        return self._ended().ran.rejections

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """With `paths`, one for each path that is faster than the one that ran; without, signs of a fallback."""
        block = self._ended()
        return fallbacks(block.ran, block.paths, block.arch)

    def table(self) -> str:
        """The kernels in aligned columns, and the fallbacks."""
        rows = [("role", "family", "count", "grid", "kernel"), *map(_row, self.kernels)]
        return "\n".join([*aligned(rows), *map(_line, self.fallbacks)])

    def __repr__(self) -> str:
        if self._block is None:
            return "<Seen: the block has not ended>"
        return f"<Seen: {', '.join(_briefly(self.kernels)) or 'no kernel'}>"

    def _ended(self) -> Block:
        __tracebackhide__ = True
        if self._block is None:
            raise RuntimeError("ask `seen` after its block: nothing is known before the profiler has stopped")
        return self._block


def _row(kernel: Kernel) -> tuple[str, str, str, str, str]:
    grid = "×".join(map(str, kernel.grid)) if kernel.grid else "-"
    return kernel.role, kernel.family, str(kernel.count), grid, short(kernel.name)


def _line(fallback: Fallback) -> str:
    said = f" (announced: {'; '.join(fallback.announced)})" if fallback.announced else ""
    return f"fallback: {fallback.why}{said}"


def _briefly(kernels: tuple[Kernel, ...]) -> Iterator[str]:
    for kernel in kernels:
        yield f"{kernel.role} {kernel.family} ×{kernel.count}"
