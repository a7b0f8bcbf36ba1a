"""The covering array against brute force: a tuple is uncovered only if no valid row holds it."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaudit.errors import UserError
from kaudit.matrix.cover import MOST_VALUES, cover


def tuples(rows: np.ndarray, strength: int) -> set[tuple[tuple[int, int], ...]]:
    return {
        tuple((a, int(row[a])) for a in axes) for row in rows for axes in combinations(range(rows.shape[1]), strength)
    }


@st.composite
def constrained(draw: st.DrawFn) -> tuple[np.ndarray, list[np.ndarray]]:
    """Valid combinations of classes, dense, sparse or none at all; and classes of 1 to 3 values."""
    classes = [
        np.repeat(np.arange(len(sizes)), sizes)
        for sizes in draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=3, max_size=5))
    ]
    shape = tuple(int(own[-1]) + 1 for own in classes)
    seed, density = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.02, 0.2, 0.5, 0.9, 1.0]))
    return np.random.default_rng(seed).random(shape) < density, classes


@settings(max_examples=150, deadline=None)
@given(constrained(), st.sampled_from([2, 3]))
def test_every_valid_tuple_is_covered_and_every_row_is_valid(space: tuple[np.ndarray, list], strength: int) -> None:
    valid, classes = space
    rows = cover(valid, classes, strength, 10_000)
    every = np.argwhere(valid[np.ix_(*classes)])
    assert tuples(rows, strength) == tuples(every, strength)
    assert {tuple(row) for row in rows.tolist()} <= {tuple(row) for row in every.tolist()}
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)


def test_same_input_same_rows() -> None:
    valid = np.random.default_rng(1).random((3, 4, 2, 3)) < 0.6
    classes = [np.arange(n) for n in valid.shape]
    assert np.array_equal(cover(valid, classes, 2, 100), cover(valid.copy(), classes, 2, 100))


def test_few_rows_where_the_product_is_huge() -> None:
    """12 axes of 10 values: 10^12 combinations. Any pairwise array has at least 100 rows."""
    classes = [np.zeros(10, np.intp)] * 12
    rows = cover(np.ones((1,) * 12, np.bool_), classes, 2, 10_000)
    pairs = {(a, b, *values) for a, b in combinations(range(12), 2) for values in product(range(10), repeat=2)}
    assert {(a, b, int(row[a]), int(row[b])) for row in rows for a, b in combinations(range(12), 2)} == pairs
    assert len(rows) < 250


def test_refuses_more_rows_than_asked_for() -> None:
    with pytest.raises(UserError, match="more than 8 cells; raise --max-cells"):
        cover(np.ones((3, 3, 3), np.bool_), [np.arange(3)] * 3, 2, 8)


def test_refuses_more_values_than_fit_its_table() -> None:
    with pytest.raises(UserError, match="split the matrix"):
        cover(np.ones((1, 1, 1), np.bool_), [np.zeros(MOST_VALUES, np.intp)] * 3, 2, 8)
