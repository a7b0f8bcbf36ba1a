"""One output beside the textbook's, in numbers."""

from functools import cache
from importlib.resources import files

import torch
import yaml
from torch import Tensor

from kaudit.wire import Numbers
from kaudit_probes.poison import unwritten

LOG_SUM_EXP = "log_sum_exp"
_NAMES = {torch.float64: "fp32", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@cache
def _tolerances() -> dict[str, dict[str, float]]:
    tolerances: dict[str, dict[str, float]] = yaml.safe_load(
        files("kaudit_probes").joinpath("tolerances.yaml").read_text()
    )
    return tolerances


def tolerance(op: str, dtype: torch.dtype | str) -> float:
    """What tolerances.yaml allows an output of that dtype, or of a cache of that name; `attention=x` is attention."""
    of_op = _tolerances().get(op.partition("=")[0], _tolerances()["default"])
    return of_op[dtype if isinstance(dtype, str) else _NAMES[dtype]]


def errors(got: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Of [rows, heads, width] each: |error| by the root mean square of the row and head plus the element's own size, 0
    where one of the two is not finite; and where only one is, or they are unlike infinities: bool.

    Where the textbook is no number, nothing is held against the output.
    """
    got, wanted = got.double(), wanted.double()
    finite = got.isfinite() & wanted.isfinite()
    known = torch.where(wanted.isfinite(), wanted, 0.0)
    size = known.square().mean(-1, keepdim=True).sqrt() + known.abs()
    off = torch.where(finite, got - known, 0.0).abs()
    # Without an error, a size of 0 is no fault; with one, any size that is not 0 shows it.
    return off / size.clamp_min(torch.finfo(torch.float64).tiny), ~finite & ~wanted.isnan() & (got != wanted)


def figures(got: Tensor, wanted: Tensor, allowed: float) -> Numbers:
    """`allowed`: the tolerance of the error. Both [rows, heads, width], or [rows, width]."""
    if got.dim() == 2:
        got, wanted = got[:, None], wanted[:, None]
    off, unlike = errors(got, wanted)
    blank = unwritten(got) & ~wanted.isnan()  # a CPU's arithmetic hands the mark of an input on
    row, head = _worst(off, unlike, blank)
    finite = got.isfinite() & wanted.isfinite()
    one, other = (torch.where(finite, tensor.double(), 0.0) for tensor in (got, wanted))
    seen, difference, norm = bool(finite.any()), (one - other).abs(), other.norm()
    similar = (one * other).sum() / (one.norm() * norm)
    return Numbers(
        error=off.max().item() if seen else None,
        tolerance=allowed,
        max_abs=difference.max().item() if seen else None,
        mean_abs=(difference.sum() / finite.sum()).item() if seen else None,
        relative=_number(difference.norm() / norm),
        cosine=_number(similar),
        row=row,
        head=head,
        nonfinite=int((unlike & ~blank).sum()),
        unwritten=int(blank.flatten(1).any(1).sum()),
    )


def lse_error(got: Tensor, wanted: Tensor) -> float | None:
    """The largest absolute error; None where a log-sum-exp is no number, or infinite where the other is not."""
    got, wanted = got.double(), wanted.double()
    return _number(torch.where(got == wanted, 0.0, (got - wanted).abs()).max())


def _worst(off: Tensor, unlike: Tensor, blank: Tensor) -> tuple[int, int]:
    """Row and head: of the first element that is not written, else that is not finite, else of the largest error."""
    found = blank if blank.any() else unlike if unlike.any() else off
    at = int(found.to(torch.float64).flatten(1).amax(-1).argmax())
    return at, int(found[at].to(torch.float64).amax(-1).argmax())


def _number(value: Tensor) -> float | None:
    return value.item() if value.isfinite() else None
