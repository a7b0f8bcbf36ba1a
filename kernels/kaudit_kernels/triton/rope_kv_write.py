"""RoPE and the write of K and V to the cache, in one pass over what the projection gave.

qkv [tokens, heads * dims of Q, then K, then V]; q [tokens, Q_HEADS, HEAD_DIM]; k and v [rows, KV_HEADS, dim] are the
cache, whatever its layout: slots [tokens] says which row each token goes to. cosines and sines [tokens, HEAD_DIM / 2]
float32 hold the scaling; k_scale and v_scale [KV_HEADS] float32 those of a quantised cache. fp8 comes as its bytes. The
bits in the cache are those of eager.rope_kv_write if no sum is fused to an FMA.
"""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kaudit_kernels.triton.fp8_bits import fp8_bits


@triton.jit
def rope_kv_write_kernel(
    qkv,
    q,
    k,
    v,
    slots,
    cosines,
    sines,
    k_scale,
    v_scale,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_HEAD_DIM: tl.constexpr,
    ROPE: tl.constexpr,  # "none", "neox" or "interleaved"
    KV_DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,  # the largest magnitude that a quantised cache stores, 0 where it is none
    Q_BLOCK: tl.constexpr,  # query heads of a program
    KV_BLOCK: tl.constexpr,  # KV heads of a program
    PAIRS: tl.constexpr,  # the power of two >= HEAD_DIM / 2
    V_BLOCK: tl.constexpr,  # the power of two >= V_HEAD_DIM
):
    """Program (token, part): the first parts take Q_BLOCK query heads each, the others K and V of KV_BLOCK heads."""
    q_parts: tl.constexpr = (Q_HEADS + Q_BLOCK - 1) // Q_BLOCK
    width: tl.constexpr = (Q_HEADS + KV_HEADS) * HEAD_DIM + KV_HEADS * V_HEAD_DIM
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    qkv += token * width
    cosines += token * (HEAD_DIM // 2)
    sines += token * (HEAD_DIM // 2)
    if part < q_parts:
        queries = part * Q_BLOCK + tl.arange(0, Q_BLOCK)
        q += token * (Q_HEADS * HEAD_DIM)
        _turn(qkv, q, None, cosines, sines, queries, queries < Q_HEADS, HEAD_DIM, ROPE, "", 0.0, PAIRS)
    else:
        slot = tl.load(slots + token)
        heads = (part - q_parts) * KV_BLOCK + tl.arange(0, KV_BLOCK)
        there = heads < KV_HEADS
        qkv += Q_HEADS * HEAD_DIM
        k += slot * (KV_HEADS * HEAD_DIM)
        _turn(qkv, k, k_scale, cosines, sines, heads, there, HEAD_DIM, ROPE, KV_DTYPE, LARGEST, PAIRS)
        qkv += KV_HEADS * HEAD_DIM
        v += slot * (KV_HEADS * V_HEAD_DIM)
        columns = tl.arange(0, V_BLOCK)
        inside = there[:, None] & (columns < V_HEAD_DIM)[None, :]
        places = heads[:, None] * V_HEAD_DIM + columns[None, :]
        value = tl.load(qkv + places, mask=inside, other=0.0)
        tl.store(v + places, _stored(value, v, v_scale, heads, there, KV_DTYPE, LARGEST), mask=inside)


@triton.jit
def _turn(
    given,
    kept,
    scale,
    cosines,
    sines,
    heads,
    there,
    HEAD_DIM: tl.constexpr,
    ROPE: tl.constexpr,
    KV_DTYPE: tl.constexpr,
    LARGEST: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Rotate the heads of one token from `given` to `kept`, both [heads, HEAD_DIM]."""
    pairs = tl.arange(0, PAIRS)
    paired = pairs < HEAD_DIM // 2
    if ROPE == "interleaved":  # loaded and stored whole, so that accesses stay wide
        columns = tl.arange(0, 2 * PAIRS)
        inside = there[:, None] & (columns < HEAD_DIM)[None, :]
        places = heads[:, None] * HEAD_DIM + columns[None, :]
        both = tl.load(given + places, mask=inside, other=0.0).to(tl.float32)
        first, second = tl.split(tl.reshape(both, (heads.shape[0], PAIRS, 2)))
    else:
        inside = there[:, None] & paired[None, :]
        places = heads[:, None] * HEAD_DIM + pairs[None, :]
        first = tl.load(given + places, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(given + places + HEAD_DIM // 2, mask=inside, other=0.0).to(tl.float32)
    if ROPE != "none":
        cosine = tl.load(cosines + pairs, mask=paired, other=0.0)[None, :]
        sine = tl.load(sines + pairs, mask=paired, other=0.0)[None, :]
        first, second = first * cosine - second * sine, second * cosine + first * sine
    if ROPE == "interleaved":
        both = tl.reshape(tl.join(first, second), (heads.shape[0], 2 * PAIRS))
        tl.store(kept + places, _stored(both, kept, scale, heads, there, KV_DTYPE, LARGEST), mask=inside)
    else:
        tl.store(kept + places, _stored(first, kept, scale, heads, there, KV_DTYPE, LARGEST), mask=inside)
        tl.store(
            kept + places + HEAD_DIM // 2, _stored(second, kept, scale, heads, there, KV_DTYPE, LARGEST), mask=inside
        )


@triton.jit
def _stored(x, kept, scale, heads, there, KV_DTYPE: tl.constexpr, LARGEST: tl.constexpr):
    """x [heads, columns] as `kept` stores it: the bits of cache.write."""
    if LARGEST > 0:
        by = tl.load(scale + heads, mask=there, other=1.0)
        x = tl.div_rn(x.to(tl.float32), tl.broadcast_to(by[:, None], x.shape))  # `/` is two units off
        x = tl.clamp(x, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
        if KV_DTYPE == "int8":
            # Adding 1.5 * 2**23 leaves no bits behind the point: rounded to the nearest, ties to even.
            x = (x + 12582912.0) - 12582912.0
            # The cache comes as bytes: a negative float would be 0 as an unsigned one.
            x = x.to(tl.int8).to(tl.uint8, bitcast=True)
        else:
            x = fp8_bits(x, KV_DTYPE == "fp8_e5m2")
    return x.to(kept.dtype.element_ty)
