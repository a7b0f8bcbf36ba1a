"""What `--version` tells: kaudit's own, and what of the environment steers an engine. Nothing of it is imported."""

import platform
from collections.abc import Iterator
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


def facts() -> Iterator[str]:
    """Lines: kaudit, the Python and its platform, the packages that are installed beside it."""
    yield f"kaudit {__version__}"
    yield f"python {platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} not installed"
