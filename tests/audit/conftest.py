import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Makes a program in Python's place, of a script for bash."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def write(script: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, which what a shell starts behind it ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
