"""Why scaled_dot_product_attention turned a back end down: in torch's words, else by checks of our own, marked so."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kaudit.observation import Rejection, Said, Source
from kaudit_probes.engines.sdpa_call import Arguments

PATHS: Mapping[int, str] = {
    SDPBackend.CUDNN_ATTENTION.value: "sdpa:cudnn",
    SDPBackend.FLASH_ATTENTION.value: "sdpa:flash",
    SDPBackend.EFFICIENT_ATTENTION.value: "sdpa:efficient",
    SDPBackend.MATH.value: "sdpa:math",
}
"""Path names by the number of the SDPBackend, which is no int and equals none."""

ENABLED: Mapping[str, Callable[[], bool]] = {
    "sdpa:cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "sdpa:flash": torch.backends.cuda.flash_sdp_enabled,
    "sdpa:efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "sdpa:math": torch.backends.cuda.math_sdp_enabled,
}

# Words by which torch's texts name a back end; flash stands last, since others are said to use flash attention, too.
_NAMED = (
    ("sdpa:cudnn", re.compile("cudnn", re.IGNORECASE)),
    ("sdpa:efficient", re.compile("mem(ory)?[ _-]?efficient", re.IGNORECASE)),
    ("sdpa:flash", re.compile("flash", re.IGNORECASE)),
)
_HEADER = re.compile(r"kernel not used because:\s*$")
_ORIGIN = re.compile(r"\s*\(Triggered internally at .*", re.DOTALL)


def turned_down(arguments: Arguments, order: Sequence[int]) -> tuple[Rejection, ...]:
    """Each back end that stands before the chosen one in `order`, with why (source "asked")."""
    faster = order[: order.index(arguments.choice())]
    return tuple(Rejection(PATHS[backend], "asked", (_why(arguments, backend),)) for backend in faster)


def rejections(texts: Iterable[str], source: Source) -> tuple[Rejection, ...]:
    """Per back end that torch's warnings speak of, what they say; warnings that speak of none are left out.

    A header ("Flash attention kernel not used because:") says whom the texts behind it are about.
    """
    said: dict[str, dict[Said, None]] = {}
    about = None
    for text in (_ORIGIN.sub("", text) for text in texts):
        named = next((path for path, words in _NAMED if words.search(text)), None)
        if _HEADER.search(text):
            about = named
        elif (path := about or named) is not None:
            said.setdefault(path, {})[Said(text)] = None  # once for each back end, however often it was said
    return tuple(Rejection(path, source, tuple(reasons)) for path, reasons in said.items())


def _why(arguments: Arguments, backend: int) -> Said:
    """torch stops at the first predicate that fails, so there is one reason."""
    path = PATHS[backend]
    if not ENABLED[path]():
        return Said("kaudit: it is switched off in this process")
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(SDPBackend(backend)):
        warnings.simplefilter("always")
        try:
            arguments.choice()
        except RuntimeError:  # "No available kernel": what it was asked for, and what brings the reasons out
            spoken = rejections((str(warning.message) for warning in caught), "asked")
            said = next((rejection.reasons[0] for rejection in spoken if rejection.path == path), None)
            return said if isinstance(said, Said) else _unspoken(arguments, backend)
    return Said("kaudit: torch takes it when no other back end is enabled")


def _unspoken(arguments: Arguments, backend: int) -> Said:
    """The predicates of torch that fail without a text, or with one that comes once in a process."""
    mask, wanted = arguments.mask, (arguments.q.shape[-2], arguments.k.shape[-2])
    if mask is not None and mask.requires_grad:
        return Said("kaudit: attn_mask requires grad, needs one that does not")
    if mask is not None and any(size not in (1, full) for size, full in zip(mask.shape[-2:], wanted, strict=True)):
        return Said(f"kaudit: attn_mask ends in {tuple(mask.shape[-2:])}, needs {wanted}")
    if PATHS[backend] == "sdpa:cudnn" and wanted[1] == 1:
        return Said("kaudit: kv_len=1, needs 2")
    return Said("kaudit: torch gives no reason, and none of its predicates that we know fails")
