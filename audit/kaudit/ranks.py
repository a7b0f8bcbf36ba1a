"""How the path that ran compares with the one before, where the engine's own list of paths may have changed too."""

from functools import cache

Paths = tuple[str, ...]
"""An engine's paths for one op, fastest first."""


def named(path: str | None) -> str:
    """A path's name in a sentence; kernels that match no path of the engine's have none."""
    return path if path is not None else "kernels of no listed path"


def faster(path: str | None, paths: Paths) -> Paths:
    """The paths that stand before this one; all of them before what the list does not hold."""
    return paths[: _rank(path, paths)]


@cache
def step(was: str | None, now: str | None, old: Paths, new: Paths) -> int:
    """Above 0 where `now` is slower than `was`, below 0 where faster, 0 where the lists do not tell.

    `old` and `new` are the lists of the two tables. A list ranks the two paths if it holds both. Where each list does
    and they disagree, the engine has changed its mind about the order, and neither is called slower. Where none does
    (one path left the list, the other entered it), each is placed by how many of the surviving paths are faster.
    """
    if was == now:
        return 0
    ranked = [_sign(_rank(now, paths) - _rank(was, paths)) for paths in (old, new) if _holds(paths, was, now)]
    if ranked:
        return ranked[0] if len(set(ranked)) == 1 else 0
    surviving = set(old) & set(new)
    return _sign(_how_many(now, new, surviving) - _how_many(was, old, surviving))


def _holds(paths: Paths, *both: str | None) -> bool:
    return all(path is None or path in paths for path in both)


def _rank(path: str | None, paths: Paths) -> int:
    """0 is fastest. What the list does not hold ranks behind its last."""
    return paths.index(path) if path in paths else len(paths)


def _how_many(path: str | None, paths: Paths, among: set[str]) -> int:
    return sum(other in among for other in faster(path, paths))


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
