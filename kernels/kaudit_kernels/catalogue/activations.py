"""The activation of the MLP."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, ANYWHERE
from kaudit_kernels.cuda.silu_mul import VECTOR, silu_mul
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import dtype, intermediate

SILU_MUL = (
    Kernel(
        "vectorised_silu_mul",
        requires=(
            AMPERE,
            dtype.one_of("fp16", "bf16"),
            *ANYWHERE,
            intermediate.multiple_of(VECTOR),  # 16-byte accesses: each row starts on a 16-byte boundary
            ANY_STRIDES,
        ),
        launch=silu_mul,
        functions=("silu_mul_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager.silu_mul),
)
