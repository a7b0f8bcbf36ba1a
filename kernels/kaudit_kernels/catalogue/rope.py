"""RoPE, and the write of new K and V to the cache."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, TOKENWISE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import dtype, head_dim, kv_dtype, kv_layout, mask
from kaudit_kernels.triton import launch as triton

ROPE_KV_WRITE = (
    Kernel(
        "fused_rope_kv_write",
        requires=(
            AMPERE,
            dtype.one_of("fp32", "fp16", "bf16"),
            # Rounded to 8 bits in integers, so an sm_80 without fp8 instructions stores it, too.
            kv_dtype.same_as("dtype", "fp8_e4m3", "fp8_e5m2", "int8"),
            head_dim.multiple_of(2),  # rotation turns pairs
            kv_layout.one_of("contiguous", "ragged", "paged"),  # a token knows the row that it goes to
            mask.any(),
            TOKENWISE,
        ),
        launch=triton.rope_kv_write,
        functions=("^rope_kv_write_kernel",),
    ),
    Kernel(
        "eager",
        requires=(
            head_dim.multiple_of(2),  # rotation turns pairs
            ANY_STRIDES,
        ),
        launch=eager.rope_kv_write,
    ),
)
