"""What `--version` tells: kaudit's own, and what of the environment steers an engine. Nothing of it is imported."""

import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from kaudit import __version__

PACKAGES = (
    "torch",
    "triton",
    "cuda-core",
    "flashinfer-python",
    "flash-attn",
    "transformers",
    "xformers",
)


def installed() -> dict[str, str]:
    """By package, its version; empty where it is absent."""
    found = dict.fromkeys(PACKAGES, "")
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def facts() -> Iterator[str]:
    """Lines: kaudit, the Python and its platform, the packages that are installed beside it."""
    yield f"kaudit {__version__}"
    yield f"python {platform.python_version()} on {platform.system()} {platform.machine()}"
    yield from (f"{package} {found or 'not installed'}" for package, found in installed().items())
