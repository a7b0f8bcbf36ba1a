"""What an exception comes to: where it ends a cell, its outcome, in words that are the same in every run.

Where torch does not import, this does: it words that, too.
"""

import re

from kaudit.observation import OUT_OF_MEMORY, Crashed

# torch's allocators have an exception of their own for it; CUDA, its libraries, Triton and Python have others.
_NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|ALLOC_FAILED|can't allocate memory")


_MOST_TEXT = 64 * 1024
"""Characters of an exception that are looked at: some hold the repr of a tensor, or a whole compiler log."""

_VARIES = re.compile(r"0x[0-9a-fA-F]+")


def crash(error: Exception) -> Crashed:
    import torch

    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or _NO_MEMORY.search(first_line(error)):
        return OUT_OF_MEMORY
    return Crashed(named(error))


def named(error: Exception) -> str:
    """`KeyError: 'q'`"""
    return _typed(error, first_line(error))


def named_briefly(error: BaseException) -> str:
    """`KeyError: 'q'`, by brief()."""
    return _typed(error, brief(error))


def _typed(error: BaseException, text: str) -> str:
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def first_line(error: BaseException) -> str:
    """What of an exception's text goes into a table: its first line, without addresses, at most 1000 characters."""
    lines = text_of(error).strip().splitlines() or [""]
    return _VARIES.sub("0x…", lines[0])[:1000]


def brief(error: BaseException) -> str:
    """What of an exception's text a line that ends a sweep has room for: 200 characters. The first line alone may say
    nothing: `Validation error for field 'hidden_size':`, and the next one why."""
    return _VARIES.sub("0x…", " ".join(text_of(error).split()))[:200]


def text_of(error: BaseException) -> str:
    """The text of an exception, as far as it is looked at; nothing where it cannot say it."""
    try:
        text = str(error)
    except Exception:
        return ""
    # It may be of a class of its own, whose methods are not to be trusted. A path that is no UTF-8 holds what JSON
    # cannot.
    return str.encode(str.__getitem__(text, slice(_MOST_TEXT)), errors="replace").decode()
