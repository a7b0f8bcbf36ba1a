"""The four matrix products of a layer. Each reads one width of a token and writes another."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, ANYWHERE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.projections import scaled_mm, skinny_gemm
from kaudit_kernels.requirements import (
    Number,
    Requirement,
    attention_width,
    dtype,
    gate_up_width,
    hidden,
    intermediate,
    qkv_width,
    sm,
    tokens,
    weight_dtype,
)


def _projection(reads: Number, writes: Number, *worth: Requirement) -> tuple[Kernel, ...]:
    """`worth`: what the skinny product pays with beside what every projection asks of it."""
    return (
        Kernel(
            "skinny_gemm",
            requires=(
                AMPERE,
                dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
                weight_dtype.same_as("dtype"),  # and multiply two numbers of one type
                *ANYWHERE,
                tokens.at_most(64),  # a program holds the sums of all of them
                ANY_STRIDES,
            ),
            worth=(
                # Beside cuBLAS on an H200, 1 to 16 tokens of 4096 numbers: 1.2 times as fast to 4096 columns, 1.06 to
                # 6144, as fast to 16,384. 32 tokens: 0.9 to 1.0.
                tokens.at_most(16),
                reads.at_most(8192),  # 10,240: 0.8 to 1.06
                # Fewer leave SMs without a tile: 0.97 to 1.01 at 3072.
                writes.at_least(4096),
                *worth,
            ),
            launch=skinny_gemm,
            functions=("^skinny_gemm_kernel",),
        ),
        Kernel(
            "scaled_mm",
            requires=(
                sm.at_least(89),  # the first tensor cores that multiply fp8
                weight_dtype.one_of("fp8_e4m3"),
                dtype.one_of("bf16"),  # with a scale for each row torch gives other types on some GPUs only
                *ANYWHERE,
                reads.multiple_of(16),  # cuBLASLt and CUTLASS read 16 bytes at a time, torch refuses the rest
                writes.multiple_of(16),
                ANY_STRIDES,
            ),
            launch=scaled_mm,
            functions=("^quantise_rows_kernel",),  # the product is cuBLASLt's or CUTLASS's, under names of their own
        ),
        Kernel("eager", requires=(weight_dtype.same_as("dtype", "fp8_e4m3"), ANY_STRIDES), launch=eager.project),
    )


# Else a row of the weight starts off a 16-byte boundary: 0.75 to 1.08.
QKV_PROJ = _projection(hidden, qkv_width, qkv_width.multiple_of(8))
O_PROJ = _projection(attention_width, hidden, hidden.multiple_of(8))
# Four times the hidden state, of heads of an even number of elements: a multiple of 8.
GATE_UP_PROJ = _projection(hidden, gate_up_width)
# It reads twice what it writes: of at most 8192 and at least 4096, a hidden state of 4096 alone is left.
DOWN_PROJ = _projection(intermediate, hidden)
