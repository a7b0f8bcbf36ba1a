"""Globs over cell ids."""

import fnmatch
import re
from collections.abc import Callable
from functools import cache


@cache
def glob(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Matches whole cell ids, case and all; `*` crosses the slashes of an id."""
    return re.compile(fnmatch.translate(pattern)).match
