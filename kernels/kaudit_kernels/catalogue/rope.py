"""RoPE, and the write of new K and V to the cache."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import TOKENWISE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import head_dim

ROPE_KV_WRITE = (
    Kernel(
        "eager",
        requires=(
            head_dim.multiple_of(2),  # rotation turns pairs
            TOKENWISE,
        ),
        launch=eager.rope_kv_write,
    ),
)
