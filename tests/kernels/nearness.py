"""How near to the reference a result has to be."""

import torch
from torch import Tensor


def near(found: Tensor, wanted: Tensor, token: int = 1) -> None:
    """Each element within two units in the last place of itself, and one of the largest of its token.

    `token`: how many of the last dimensions that is, 2 of [tokens, heads, dim].
    A sum of many terms is small where they cancel, yet each was rounded as it was: the largest of the token tells how
    its terms are sized. Not the largest of all: of a query that sees thousands of keys the mean is a hundredth of that
    of one that sees one key, and could be anything. Half precision rounds softmax weights before they meet V, and the
    result: of 1,500 problems of attention in fp16 none used more than a third of what is allowed.
    """
    assert found.shape == wanted.shape
    if not found.is_floating_point():
        assert torch.equal(found, wanted)
        return
    # Sums of float32 are taken in another order: some units.
    unit = torch.finfo(found.dtype).eps * (16 if found.dtype == torch.float32 else 1)
    found, wanted = found.float(), wanted.float()
    size = torch.where(wanted.isfinite(), wanted.abs(), 0.0)
    allowed = unit * (2 * size + size.amax(tuple(range(-token, 0)), keepdim=True))
    off = torch.where(found == wanted, 0.0, (found - wanted).abs())  # infinities are equal
    wrong = ~(off <= allowed)  # NaN is
    if count := int(wrong.sum()):
        worst = int(torch.where(wrong, off / allowed, 0.0).nan_to_num(torch.inf).argmax())
        place = tuple(map(int, torch.unravel_index(torch.tensor(worst), found.shape)))
        raise AssertionError(
            f"{count} of {found.numel()} elements are off, most of all the one at {place} of {tuple(found.shape)}: "
            f"{found[place].item():.6g}, due {wanted[place].item():.6g} within {allowed[place].item():.2g}"
        )
