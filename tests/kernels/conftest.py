"""Without a GPU the Triton kernels run in Triton's interpreter, on CPU tensors; with one, they run compiled."""

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch

import kaudit_kernels.triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _interpret_kernels() -> None:
    """Triton looks at the variable when a kernel is defined. It must not stay set: other tests start processes."""
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        for module in iter_modules(kaudit_kernels.triton.__path__):
            with suppress(ImportError):  # no Triton: its tests skip themselves
                import_module(f"kaudit_kernels.triton.{module.name}")
    finally:
        del os.environ["TRITON_INTERPRET"]


if DEVICE == "cpu":
    _interpret_kernels()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where Triton kernels run: "cuda", or "cpu" with the interpreter on."""
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    return DEVICE


@pytest.fixture
def poisoned_outputs() -> Iterator[None]:
    """Every tensor made by torch.empty starts as NaN, so that an element that a kernel leaves unwritten shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(1).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)
