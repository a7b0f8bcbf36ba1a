"""The choice of a token, without a sort: a row of logits lives in registers, and the threshold is found by bisection.

What the limits mean is written down in eager_sampling.py. Floats of one sign are ordered as their bits are, so that a
bisection over bits ends at the exact threshold, after 32 steps at most, whatever the logits. Each step is a sum over
the row, in a fixed order: the same row and number give the same token, whatever else is in the batch.
"""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def sample_kernel(
    logits,  # [batch, vocabulary] float32
    draws,  # [batch] float32 of [0, 1), read unless greedy
    tokens,  # [batch] int64
    vocabulary,
    scale,  # of the logits, to units of log2
    TOP_K: tl.constexpr,  # 0: no limit
    TOP_P: tl.constexpr,  # 0: no limit; with neither, greedy
    BLOCK: tl.constexpr,  # the power of two >= vocabulary
):
    row = tl.program_id(0)
    ids = tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * vocabulary + ids, mask=ids < vocabulary, other=float("-inf"))
    if TOP_K == 0 and TOP_P == 0.0:
        token = tl.argmax(x, axis=0)
    else:
        if TOP_K > 0:
            x = tl.where(_ordered(x) >= _kth_largest(x, TOP_K), x, float("-inf"))
        largest = tl.max(x, axis=0)
        # Where nothing is allowed, minus infinity taken from itself would be NaN.
        weights = tl.exp2((x - tl.where(largest == float("-inf"), 0.0, largest)) * scale)
        if TOP_P > 0.0:
            weights = tl.where(weights.to(tl.int32, bitcast=True) >= _nucleus(weights, TOP_P), weights, 0.0)
        token = _drawn(weights, tl.load(draws + row), ids, vocabulary)
    tl.store(tokens + row, token.to(tl.int64))


@triton.jit
def _ordered(x):
    """float32 as int32 that compare as the floats do. The two zeros are one number."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _kth_largest(x, TOP_K: tl.constexpr):
    """The k-th largest of x, ordered as int32; minus infinity's, where there are fewer."""
    keys = _ordered(x)
    # At least k of the keys are >= low; int64, since their difference may exceed int32.
    low, high = tl.min(keys, axis=0).to(tl.int64), tl.max(keys, axis=0).to(tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        enough = tl.sum((keys >= middle.to(tl.int32)).to(tl.int32), axis=0) >= TOP_K
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    return low.to(tl.int32)


@triton.jit
def _nucleus(weights, TOP_P: tl.constexpr):
    """The bits of the largest weight of which all that are not less come to TOP_P of the whole."""
    bits = weights.to(tl.int32, bitcast=True)
    wanted = tl.sum(weights, axis=0) * TOP_P
    low, high = tl.min(bits, axis=0), tl.max(bits, axis=0)
    while low < high:
        middle = low + (high - low + 1) // 2
        enough = tl.sum(tl.where(bits >= middle, weights, 0.0), axis=0) >= wanted
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    return low


@triton.jit
def _drawn(weights, number, ids, vocabulary):
    """The first token at which the sum of the weights up to it exceeds that part `number` of the whole.

    In whole parts of 2**-30, so that the sums are exact, in whatever order, and grow with the tokens; in float32 they
    would be off by more than a token of a large vocabulary weighs. A weight of less than one part is never drawn.
    """
    whole = tl.maximum(tl.sum(weights, axis=0), 1.0)  # the largest weight is 1, unless nothing is allowed
    parts = (weights * (1073741824.0 / whole)).to(tl.int32)
    # A uniform number has 24 bits.
    wanted = (((number * 16777216.0).to(tl.int64) * tl.sum(parts, axis=0).to(tl.int64)) >> 24).to(tl.int32)
    token = tl.min(tl.where(tl.cumsum(parts, axis=0) > wanted, ids, vocabulary), axis=0)
    return tl.where(token < vocabulary, token, 0)
