"""Norms, alone and with the residual added."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, ANYWHERE, TOKENWISE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import dtype, hidden
from kaudit_kernels.triton import launch as triton

WHOLE_ROWS = (
    AMPERE,
    dtype.one_of("fp32", "fp16", "bf16"),
    *ANYWHERE,
    hidden.at_most(16384),  # a row lives in registers: 32 a thread at 16 warps
    TOKENWISE,
)

RMS_NORM = (
    Kernel(
        "fused_rms_norm",
        requires=WHOLE_ROWS,
        launch=triton.rms_norm,
        functions=("^rms_norm_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager.rms_norm),
)

ADD_RMS_NORM = (
    Kernel(
        "fused_rms_norm",
        requires=WHOLE_ROWS,
        launch=triton.add_rms_norm,
        functions=("^add_rms_norm_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager.add_rms_norm),
)
