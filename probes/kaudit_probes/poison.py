"""NaN with a mark of its own in memory that an op has yet to write: what carries it afterwards was not written, or was
computed from what was not."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# Quiet NaN with a payload that no arithmetic begins with: a GPU's own NaN is 0x7fffffff, a CPU's 0x?fc00000.
_MARKS = {
    torch.float64: (torch.int64, 0x7FF9_5EED_5EED_5EED),
    torch.float32: (torch.int32, 0x7FD5_5EED),
    torch.bfloat16: (torch.int16, 0x7FD5),
    torch.float16: (torch.int16, 0x7ED5),
}
"""Types of one byte have one NaN, or none, and no mark."""


def poison(tensor: Tensor) -> None:
    """Fill a contiguous tensor with marked NaN; one of a type without marks with its NaN, of integers with the most."""
    if tensor.dtype in _MARKS:
        kind, mark = _MARKS[tensor.dtype]
        tensor.view(kind).fill_(mark)
    elif tensor.is_floating_point():
        # All bits but the sign: NaN in both types of float8.
        tensor.view(torch.uint8).fill_(0x7F)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def unwritten(tensor: Tensor) -> Tensor:
    """Where a tensor still carries the mark: bool, of the tensor's shape."""
    if tensor.dtype not in _MARKS:
        return torch.zeros_like(tensor, dtype=torch.bool)
    kind, mark = _MARKS[tensor.dtype]
    return tensor.contiguous().view(kind) == mark


class Poisoning(TorchFunctionMode):
    """Every float tensor that Python code makes by torch.empty and its kin begins poisoned.

    What a library allocates in C++ is not reached: see run_over_poison. No dispatch of torch's is changed by it, as
    deterministic mode, which fills such memory too, would.
    """

    _MAKERS = frozenset(
        {torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty, Tensor.new_empty_strided}
    )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in self._MAKERS and made.dtype in _MARKS and made.is_contiguous():
            poison(made)
        return made


def run_over_poison(run: Callable[[], Tensor]) -> Tensor:
    """What `run` gives the second time, after its first result was poisoned and let go.

    For outputs that a library allocates itself: allocators hand out first what was let go last. Where one does not, or
    where the output has gaps, a row that is not written may hold an earlier right answer.
    """
    first = run()
    if _dense(first):  # attention libraries return [batch, q_len, heads] transposed
        poison(first.as_strided((first.numel(),), (1,), first.storage_offset()))
    del first
    return run()


def _dense(tensor: Tensor) -> bool:
    """Whether its elements fill one piece of memory without gaps or overlaps, in whatever order of dimensions."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != filled:
            return False
        filled *= size
    return True
