"""float32 to the bits of an 8-bit float, in integers: the same on every GPU and in the interpreter.

The cvt instruction came with sm_89 (before it Triton refuses e4m3, and rounds to e5m2 twice), and Triton 3.7's
interpreter loses the carry of a mantissa that rounds up to the next power of two.
"""

# Compile-time constants are in capitals, as Triton spells them.
# ruff: noqa: N803
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def fp8_bits(x, E5M2: tl.constexpr):
    """The uint8 of x, which is float32 and of a magnitude that the type has, or NaN; to nearest, ties to even."""
    dropped: tl.constexpr = 21 if E5M2 else 20  # bits of the mantissa
    bias: tl.constexpr = 127 - 15 if E5M2 else 127 - 7
    smallest: tl.constexpr = 2.0**-14 if E5M2 else 2.0**-6  # of the normal numbers
    # Of one binade with 2**23 steps of the size of a subnormal: a sum with it holds the count of steps in its low bits.
    shift: tl.constexpr = 2.0**7 if E5M2 else 2.0**14
    shift_bits: tl.constexpr = (127 + 7) << 23 if E5M2 else (127 + 14) << 23
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    even = (magnitude >> dropped) & 1
    normal = (magnitude - (bias << 23) + (1 << (dropped - 1)) - 1 + even) >> dropped
    subnormal = (tl.abs(x) + shift).to(tl.int32, bitcast=True) - shift_bits
    rounded = tl.where(tl.abs(x) < smallest, subnormal, normal)
    rounded = tl.where(magnitude > 0x7F800000, 0x7F, rounded)
    return (rounded | ((bits >> 24) & 0x80)).to(tl.uint8)
