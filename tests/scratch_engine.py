"""Scratch copies of the reference engine that lost a fast path: what a careless release would ship."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import kaudit_kernels

SOURCE = Path(kaudit_kernels.__file__).parent


@dataclass(frozen=True)
class Loss:
    """A requirement of one kernel, narrowed: a line of the catalogue, what it becomes, and the value it now denies."""

    kernel: str
    requirement: str
    becomes: str
    denied: str


def scratch_copy(folder: Path, loss: Loss, *, announced: bool) -> Path:
    """Copies the engine into `folder`, to be put first on PYTHONPATH, with the loss in its catalogue.

    Without `announced` the engine says nothing of the cells that the loss moves, and as before of all others.
    """
    package = folder / SOURCE.name
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    catalogue = package / "catalogue" / "attention.py"
    before, name, after = catalogue.read_text().partition(f'"{loss.kernel}"')
    assert loss.requirement in after, f"{loss.kernel} does not state {loss.requirement}"
    catalogue.write_text(before + name + after.replace(loss.requirement, loss.becomes, 1))
    if not announced:
        engine = package / "engine.py"
        announcing = "if decision.rejected:"
        source = engine.read_text()
        assert announcing in source, "the engine does not announce where it used to"
        alone = rf"{loss.kernel} \({loss.denied}, needs [^;]*?\)"  # a cell with other reasons had fallen back before
        said = f'if decision.rejected and not __import__("re").search({alone!r}, str(decision)):'
        engine.write_text(source.replace(announcing, said))
    return folder
