"""What a wrong attention looks like: the textbook with one known mistake, where that gives what the engine gave.

A hint, not a verdict: it is of the worst row alone, and another mistake may give the same there.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain

import torch
from torch import Tensor

from kaudit.cell import Mask
from kaudit.wire import Numbers
from kaudit_probes.figures import errors
from kaudit_probes.oracle import Attention, Request, Rules, attend, dequantised, indexable, visible

_SPLITS = (2, 3, 4, 8, 16, 32, 64)
_MOST_PAGES = 1 << 28
"""Elements of K to look through for a page in another's place, in all."""

Mistake = tuple[str, Tensor]
"""In words, after "as if"; and the row that it gives, [q_heads, v_dim]."""


def hint(attention: Attention, got: Tensor, numbers: Numbers, wrong_lse: bool) -> str:
    """The first mistake that explains the worst row of `got` [rows, q_heads, v_dim]; empty if none does."""
    allowed, worst = numbers.tolerance or 0.0, numbers.row
    if wrong_lse and not numbers.nonfinite and (numbers.error or 0) <= allowed:
        return "the output is right, its log-sum-exp is not"
    if worst is None or not got[worst].isfinite().all():
        return ""
    requests = list(attention.requests())
    ends = list(accumulate(len(request.q) for request in requests))
    which = next(number for number, end in enumerate(ends) if worst < end)
    row = worst - (ends[which - 1] if which else 0)
    for words, mistaken in _mistakes(attention, requests, which, row):
        if _explains(got[worst][None], mistaken[None], allowed):
            return f"as if {words}"
    return ""


def _explains(seen: Tensor, mistaken: Tensor, allowed: float) -> bool:
    off, unlike = errors(seen, mistaken)
    return not bool(unlike.any() | mistaken.isnan().any()) and off.max().item() <= allowed


def _mistakes(attention: Attention, requests: Sequence[Request], which: int, row: int) -> Iterator[Mistake]:
    request, rules = requests[which], attention.rules
    for words, other, how in chain(_masks(request, rules), _scores(request, rules), _heads(request, rules)):
        yield words, attend(other, how, range(row, row + 1))[0][0]
    for splits in _SPLITS:
        if splits <= len(request.k):
            words = f"{splits} parts of the keys were merged without their log-sum-exp"
            yield words, _merged_blindly(request, rules, row, splits)
    yield from _past(request, rules, row)
    yield from _pages(attention, requests, which, row)


def _masks(request: Request, rules: Rules) -> Iterator[tuple[str, Request, Rules]]:
    def masked(mask: Mask) -> Rules:
        return replace(rules, mask=mask)

    q_len, kv_len, kind = len(request.q), len(request.k), rules.mask.kind
    if kind == "window":
        window = rules.mask.window
        yield "the window were one key wider", request, masked(Mask("window", window + 1))
        if window > 1:
            yield "the window were one key narrower", request, masked(Mask("window", window - 1))
        yield "the window were not applied, the causal mask were", request, masked(Mask("causal"))
    if kind in ("custom", "tree"):
        yield "the mask were causal", request, masked(Mask("causal"))
    if kind != "none":
        yield "the mask were not applied", request, masked(Mask("none"))
    if kind in ("causal", "window"):
        behind = torch.arange(q_len)[:, None] - torch.arange(kv_len)  # as if the queries were the first tokens
        reach, shift, given = rules.mask.window or kv_len, kv_len - q_len, masked(Mask("custom"))
        for words, by in (
            ("the mask were aligned top-left", 0),
            ("a query did not see its own key", shift - 1),
            ("a query saw the next key", shift + 1),
        ):
            yield words, replace(request, visible=(behind >= -by) & (behind < reach - by)), given


def _scores(request: Request, rules: Rules) -> Iterator[tuple[str, Request, Rules]]:
    if rules.softcap is not None:
        yield "softcap were not applied", request, replace(rules, softcap=None)
    if rules.sinks is not None:
        yield "sinks were not applied", request, replace(rules, sinks=None)
    for words, scale in (
        ("scores were not scaled", 1.0),
        ("scores were scaled twice", rules.scale**2),
        ("e were taken for 2 in the softmax", rules.scale * math.log(2)),
        ("2 were taken for e in the softmax", rules.scale / math.log(2)),
    ):
        yield words, request, replace(rules, scale=scale)


def _heads(request: Request, rules: Rules) -> Iterator[tuple[str, Request, Rules]]:
    k_scale, v_scale = rules.k_scale, rules.v_scale
    if k_scale is not None and v_scale is not None:
        for words, k, v in (
            ("the scales of K and V were not applied", None, None),
            ("the scale of K were not applied", None, v_scale),
            ("the scale of V were not applied", k_scale, None),
            ("the scales of K and V were swapped", v_scale, k_scale),
            ("every head had the scales of the first", k_scale[:1].expand_as(k_scale), v_scale[:1].expand_as(v_scale)),
            ("heads had each other's scales", k_scale.flip(0), v_scale.flip(0)),
        ):
            yield words, request, replace(rules, k_scale=k, v_scale=v)
    kv_heads, q_heads = request.k.shape[1], request.q.shape[1]
    if 1 < kv_heads < q_heads:
        # The textbook takes heads in order: K and V as if query head h were served by KV head h % kv_heads.
        taken = torch.arange(q_heads, device=request.k.device) % kv_heads
        k, v = dequantised(request.k, k_scale)[:, taken], dequantised(request.v, v_scale)[:, taken]
        words = "query head h were served by KV head h modulo their number"
        yield words, replace(request, k=k, v=v), replace(rules, k_scale=None, v_scale=None)


def _merged_blindly(request: Request, rules: Rules, row: int, splits: int) -> Tensor:
    """The mean of what each part of the keys that the row sees gives by itself, whatever the sums of the parts."""
    sees = visible(rules.mask, request, range(row, row + 1))
    if sees is None:
        sees = torch.ones(1, len(request.k), dtype=torch.bool, device=request.k.device)
    part = -(-len(request.k) // splits)
    alone = replace(rules, mask=Mask("custom"), sinks=None)
    outs = [
        attend(Request(request.q[row : row + 1], k, v, shown), alone)[0][0]
        for k, v, shown in zip(
            *(torch.split(each, part) for each in (request.k, request.v)), torch.split(sees, part, 1), strict=True
        )
        if shown.any()
    ]
    return torch.stack(outs).mean(0)


def _past(request: Request, rules: Rules, row: int) -> Iterator[Mistake]:
    """The request is taken to be longer than it is: what stands behind its last token is stale."""
    if request.past is None or rules.mask.kind in ("custom", "tree"):
        return
    past_k, past_v = request.past
    for words, more in (("one stale key", 1), ("the stale keys up to the end of a page", len(past_k))):
        if len(past_k) >= max(more, 1):
            longer = replace(
                request, k=_joined(request.k, past_k[:more]), v=_joined(request.v, past_v[:more]), visible=None
            )
            yield f"the request went on, with {words}", attend(longer, rules, range(row, row + 1))[0][0]


def _joined(one: Tensor, other: Tensor) -> Tensor:
    """torch joins no float8, but its bytes."""
    return torch.cat((indexable(one), indexable(other))).view(one.dtype)


def _pages(attention: Attention, requests: Sequence[Request], which: int, row: int) -> Iterator[Mistake]:
    """Each page of the request taken from elsewhere: any whole page of any request of the batch."""
    request, page = requests[which], attention.page
    if not page:
        return
    places = [(other, at) for other, held in enumerate(requests) for at in range(0, len(held.k) - page + 1, page)]
    starts = range(0, len(request.k), page)
    if len(places) * len(starts) * request.k.numel() > _MOST_PAGES:
        return
    k_scale, v_scale = attention.rules.k_scale, attention.rules.v_scale
    own = [(dequantised(each.k, k_scale), dequantised(each.v, v_scale)) for each in requests]
    plain = replace(attention.rules, k_scale=None, v_scale=None)
    for start in starts:
        held = slice(start, min(start + page, len(request.k)))
        for other, at in places:
            if (other, at) != (which, start):
                k, v = (tensor.clone() for tensor in own[which])
                taken = slice(at, at + held.stop - held.start)
                k[held], v[held] = own[other][0][taken], own[other][1][taken]
                words = f"page {start // page} of request {which} were page {at // page} of request {other}"
                yield words, attend(replace(request, k=k, v=v), plain, range(row, row + 1))[0][0]
