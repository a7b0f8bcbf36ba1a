"""What an exception that ends a cell comes to: its outcome, in words that are the same in every run."""

import re

import torch

from kaudit.observation import OUT_OF_MEMORY, Crashed

# torch's allocators have an exception of their own for it; CUDA, its libraries, Triton and Python have others.
_NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|ALLOC_FAILED|can't allocate memory")


_VARIES = re.compile(r"0x[0-9a-fA-F]+")


def crash(error: Exception) -> Crashed:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or _NO_MEMORY.search(first_line(error)):
        return OUT_OF_MEMORY
    return Crashed(named(error))


def named(error: Exception) -> str:
    """`KeyError: 'q'`"""
    return f"{type(error).__name__}: {first_line(error)}".removesuffix(": ")


def first_line(error: BaseException) -> str:
    """What of an exception's text goes into a table: its first line, without addresses, at most 1000 characters."""
    text = str(error).encode(errors="replace").decode()  # a path that is no UTF-8 holds what JSON cannot
    lines = text.strip().splitlines() or [""]
    return _VARIES.sub("0x…", lines[0])[:1000]
