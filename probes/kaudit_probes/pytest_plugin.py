"""`pytest --kaudit`: the fixture `kernels`, for an engine's own tests to assert which kernels ran. docs/pytest.md

pytest loads this module at every start, wherever kaudit is installed: it imports nothing but pytest until a test asks.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kaudit_probes.blocks import Blocks
    from kaudit_probes.capture import Capture


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("kaudit").addoption(
        "--kaudit",
        action="store_true",
        help="run the tests that use the `kernels` fixture, under torch's profiler; they are skipped otherwise",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Raises UsageError where there is no torch to watch."""
    if config.getoption("kaudit") and find_spec("torch") is None:
        raise pytest.UsageError("--kaudit: torch is not installed here; pip install 'kaudit[torch]'")


@pytest.fixture(scope="session")
def _kaudit_captures() -> "dict[str, Capture]":
    """The profiler of each device, started by the first block that watches it: once a process, some 6 s on a GPU."""
    return {}


@pytest.fixture
def kernels(request: pytest.FixtureRequest) -> "Blocks":
    """`with kernels() as seen:` watches which kernels the block runs; needs --kaudit."""
    if not request.config.getoption("kaudit"):
        pytest.skip("run with --kaudit")
    from kaudit_probes.blocks import Blocks

    return Blocks(request.getfixturevalue("_kaudit_captures"), request.node)
