"""What the prefill kernels share: which keys a tile of queries sees, and one block of keys in its running softmax.

A tile is BLOCK_M rows; a row is one (query, head of the group) pair: heads that share a KV head share its loads, and
any group size fills the tile. Exponentials are of base two, which is the one the hardware has (ex2).
"""

# Compile-time constants are in capitals, as Triton spells them, and l is the softmax's running sum, as papers have it.
# ruff: noqa: N803, E741
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def key_ranges(
    tile, q_len, kv_len, window,
    GROUP: tl.constexpr, MASK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Keys [low, high) are seen by some row of the tile, keys [low_full, high_full) by every row.

    low, low_full and high_full are whole blocks; returned in the order low, low_full, high_full, high.
    """
    prefix = kv_len - q_len
    first_own = prefix + tile * BLOCK_M // GROUP
    last_row = tl.minimum(tile * BLOCK_M + BLOCK_M, q_len * GROUP) - 1
    last_own = prefix + last_row // GROUP
    low, low_full, high, high_full = 0, 0, kv_len, kv_len
    if MASK == "causal" or MASK == "window":
        high, high_full = last_own + 1, first_own + 1
    if MASK == "window":
        low = tl.maximum(first_own - window + 1, 0) // BLOCK_N * BLOCK_N
        low_full = tl.cdiv(tl.maximum(last_own - window + 1, 0), BLOCK_N) * BLOCK_N
    if MASK == "tree":
        high_full = prefix
    if MASK == "custom":
        high_full = 0
    return low, low_full, tl.maximum(high_full // BLOCK_N * BLOCK_N, low_full), high


@triton.jit
def seen_by_position(keys, own, kv_len, window, MASK: tl.constexpr):
    """[BLOCK_M, BLOCK_N]: the keys that exist and that a causal mask or a window shows to the query at `own`."""
    seen = (keys < kv_len)[None, :]
    if MASK == "causal" or MASK == "window":
        seen = seen & (keys[None, :] <= own[:, None])
    if MASK == "window":
        seen = seen & (keys[None, :] > own[:, None] - window)
    return seen


@triton.jit
def capped(scores, CAP: tl.constexpr):
    """Scores in parts of CAP, bent to (-CAP, CAP). Before they are masked: minus infinity would come back as -CAP."""
    return CAP * (2 * tl.sigmoid(2 * scores) - 1)  # tanh(x) = 2 sigmoid(2x) - 1


@triton.jit
def softmax_step(scores, m, l, scale, MASKED: tl.constexpr):
    """Weights of a block of scores, the factor on what was summed before, and the new maximum and sum of each row.

    `scale` takes a score to units of log2. What is masked is minus infinity.
    """
    # Scaled after the maximum, so that scale and maximum meet the score in one multiply-add.
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    shift = m_new
    if MASKED:
        # A row that has seen no key yet keeps m at minus infinity; taken from itself that would be NaN.
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(scores * scale - shift[:, None])
    rescale = tl.exp2(m - shift)
    return p, rescale, m_new, l * rescale + tl.sum(p, axis=1)
