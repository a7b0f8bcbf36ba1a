"""The matrix: YAML to cells. `load` reads a file or names all its faults, `expand` makes the cells; both are pure."""

from kaudit.matrix.expand import MAX_CELLS, Plan, Uncovered, expand
from kaudit.matrix.load import load
from kaudit.matrix.model import Matrix
from kaudit.matrix.rules import Expectation

__all__ = ["MAX_CELLS", "Expectation", "Matrix", "Plan", "Uncovered", "expand", "load"]
