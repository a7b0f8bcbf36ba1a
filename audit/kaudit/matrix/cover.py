"""Covering arrays under constraints: few rows in which every valid pair or triple of axis values occurs."""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from kaudit.errors import UserError

MOST_VALUES = 500
"""Values of all axes together: the table of uncovered triples has the cube of it, 125 MB."""

NEVER = np.iinfo(np.intp).min

SEEDS = 4
"""Rows tried per row kept. The release matrix: 598 rows with 1, 582 with 4, 571 with 32 in six times the time."""


def cover(
    valid: NDArray[np.bool_], classes: Sequence[NDArray[np.intp]], strength: int, most_rows: int
) -> NDArray[np.intp]:
    """Rows of value indices, (rows, axes), in which each valid `strength`-tuple of values of different axes occurs.

    `classes[axis]` gives each value's class, (values,); `valid` says which combinations of classes are allowed, one
    dimension per axis. Values that no constraint tells apart share a class, so `valid` is small where the product of
    the values is huge, and what it says is exact: a tuple is left out only if no valid row holds it, and a row under
    construction never runs into a dead end. Deterministic: no randomness, ties go to the value used least, then first.

    The algorithm is the greedy of AETG (Cohen, Dalal, Fredman, Patton: The AETG System, IEEE TSE 23(7), 1997): build
    several candidate rows, each from an uncovered tuple by adding the value that covers most new tuples, and keep the
    best one. Raises UserError beyond `most_rows` rows or MOST_VALUES values.
    """
    axes = np.concatenate([np.full(len(own), axis) for axis, own in enumerate(classes)])
    if len(axes) > MOST_VALUES:
        raise UserError(f"cover: {len(axes)} axis values, at most {MOST_VALUES}; split the matrix")
    starts = np.searchsorted(axes, np.arange(len(classes)))
    class_of = np.concatenate(classes)
    open_, todo = _tuples(valid, classes, starts, strength)
    together: NDArray[np.bool_] = np.logical_or.reduce(open_, axis=tuple(range(2, strength)))
    used = np.zeros(len(axes), np.intp)
    rows: list[NDArray[np.intp]] = []

    def row_from(seed: Sequence[int]) -> tuple[int, NDArray[np.intp]]:
        """How many uncovered tuples the row made from a seed holds, and the row as places in `axes`."""
        row = np.zeros(valid.ndim, np.intp)
        index: list[int | slice] = [slice(None)] * valid.ndim
        gain = np.zeros(len(axes), np.intp)
        fitting = np.ones(len(axes), np.bool_)
        covered = length = 0
        while length < valid.ndim:
            value = (
                seed[length] if length < strength else np.where(fitting, gain * (len(rows) + 1) - used, NEVER).argmax()
            )
            index[axes[value]] = class_of[value]
            if not valid[tuple(index)].any():  # fits each value of the row, but not all of them together
                index[axes[value]] = slice(None)
                fitting[value] = False
                continue
            covered += int(gain[value])
            gain += open_[value] if strength == 2 else open_[value, row[:length]].sum(0)
            fitting &= together[value]
            row[length] = value
            length += 1
        return covered, row

    while len(todo):
        if len(rows) == most_rows:
            raise UserError(f"cover: more than {most_rows} cells; raise --max-cells or list fewer values")
        seeds = todo[np.linspace(0, len(todo) - 1, min(SEEDS, len(todo))).astype(np.intp)]
        candidates = [row_from([int(i) for i in np.unravel_index(seed, open_.shape)]) for seed in seeds]
        _, best = max(candidates, key=lambda candidate: candidate[0])
        open_[np.ix_(*[best] * strength)] = False
        todo = todo[open_.ravel()[todo]]
        used[best] += 1
        rows.append(np.sort(best))
    return np.array(rows, np.intp).reshape(-1, len(classes)) - starts


def _tuples(
    valid: NDArray[np.bool_], classes: Sequence[NDArray[np.intp]], starts: NDArray[np.intp], strength: int
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """The valid tuples as a symmetric table over all axis values, and their flat places, each tuple once."""
    total = sum(map(len, classes))
    table = np.zeros((total,) * strength, np.bool_)
    once = []
    for chosen in combinations(range(len(classes)), strength):
        others = tuple(axis for axis in range(len(classes)) if axis not in chosen)
        by_class: NDArray[np.bool_] = np.logical_or.reduce(valid, axis=others)
        allowed = by_class[np.ix_(*(classes[axis] for axis in chosen))]
        block = tuple(slice(starts[axis], starts[axis] + len(classes[axis])) for axis in chosen)
        for order in permutations(range(strength)):
            table[tuple(block[i] for i in order)] = allowed.transpose(order)
        found = np.nonzero(allowed)
        places = tuple(own + starts[axis] for own, axis in zip(found, chosen, strict=True))
        once.append(np.ravel_multi_index(places, table.shape))
    return table, np.concatenate(once)
