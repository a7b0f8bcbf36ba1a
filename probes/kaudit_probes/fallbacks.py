"""What tells a fallback among the kernels of one block: the engine's list of paths, or without one, signs. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kaudit.findings import generation
from kaudit.launches import short
from kaudit.observation import UNCLASSIFIED, Kernel, Ran
from kaudit.ranks import faster, named
from kaudit.reasons import because


@dataclass(frozen=True)
class Fallback:
    """`why` it is one, in words; `announced`: the reasons that the engine gave by itself, none if it is silent."""

    why: str
    announced: tuple[str, ...] = ()


def fallbacks(ran: Ran, paths: Sequence[str], arch: str) -> tuple[Fallback, ...]:
    """By the engine's `paths`, fastest first; by signs if there are none. `arch`: the GPU's, "sm_90"; "" on a CPU."""
    if not ran.kernels:
        return (Fallback(f"no kernel ran on the {'GPU' if arch else 'CPU'}"),)
    return _by_paths(ran, paths) if paths else _by_signs(ran.kernels, arch)


def _by_paths(ran: Ran, paths: Sequence[str]) -> tuple[Fallback, ...]:
    """One for each path before the one that ran; for every path if the kernels show none of them."""
    return tuple(
        Fallback(f"{named(ran.path)} ran, not {path}", tuple(map(because, ran.announced(path))))
        for path in faster(ran.path, tuple(paths))
    )


def _by_signs(kernels: Sequence[Kernel], arch: str) -> tuple[Fallback, ...]:
    """What no fast attention looks like, and what cannot be judged."""
    softmax = _names(kernel for kernel in kernels if kernel.role == "softmax")
    products = _names(kernel for kernel in kernels if kernel.role == "matmul")
    older = _names(kernel for kernel in kernels if 0 < generation(kernel.arch) < generation(arch))
    unknown = _names(kernel for kernel in kernels if kernel.family == UNCLASSIFIED)
    compiled = _names(kernel for kernel in kernels if kernel.role == "compiled")
    signs = {
        f"unfused attention: {softmax} beside {products}": softmax and products,
        f"made for a chip before {arch}: {older}": older,
        f"unclassified, so it cannot be judged without paths=: {unknown}": unknown,
        f"compiled as one piece, so it cannot be judged without paths=: {compiled}": compiled,
    }
    return tuple(Fallback(why) for why, holds in signs.items() if holds)


def _names(kernels: Iterable[Kernel]) -> str:
    return ", ".join(dict.fromkeys(short(kernel.name) for kernel in kernels))
