"""The four matrix products of a layer. Each reads one width of a token and writes another."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.projections import scaled_mm, skinny_gemm
from kaudit_kernels.requirements import (
    Number,
    attention_width,
    gate_up_width,
    hidden,
    intermediate,
    qkv_width,
    sm,
    tokens,
    weight_dtype,
)


def _projection(reads: Number, writes: Number) -> tuple[Kernel, ...]:
    return (
        Kernel(
            "skinny_gemm",
            requires=(
                AMPERE,
                weight_dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
                tokens.at_most(64),  # a program holds the sums of all of them
                ANY_STRIDES,
            ),
            worth=(
                # Beside cuBLAS on an H200, 1 to 16 tokens: 1.07 times as fast at 4096 to 28,672 and to 4096, as fast to
                # 6144; but 0.95 to 1.03 from 14,336.
                tokens.at_most(16),
                reads.at_most(8192),
                writes.multiple_of(8),  # else a row of the weight starts off a 16-byte boundary, and loads are narrow
                writes.at_least(2048),  # fewer columns leave SMs without a tile, and a product that is all launch
            ),
            launch=skinny_gemm,
            functions=("^skinny_gemm_kernel",),
        ),
        Kernel(
            "scaled_mm",
            requires=(
                sm.at_least(89),  # the first tensor cores that multiply fp8
                weight_dtype.one_of("fp8_e4m3"),
                reads.multiple_of(16),  # cuBLASLt and CUTLASS read 16 bytes at a time, torch refuses the rest
                writes.multiple_of(16),
                ANY_STRIDES,
            ),
            launch=scaled_mm,
            functions=("^quantise_rows_kernel",),  # the product is cuBLASLt's or CUTLASS's, under names of their own
        ),
        Kernel("eager", requires=(ANY_STRIDES,), launch=eager.project),
    )


QKV_PROJ = _projection(hidden, qkv_width)
O_PROJ = _projection(attention_width, hidden)
GATE_UP_PROJ = _projection(hidden, gate_up_width)
DOWN_PROJ = _projection(intermediate, hidden)
