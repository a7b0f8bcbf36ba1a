"""What happens to the logits: the grammar, the choice of a token. They are float32 in every step."""

from kaudit_kernels import eager, eager_sampling
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, ANYWHERE, TOKENWISE
from kaudit_kernels.cuda.logits_mask import WORD, logits_mask
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import batch, dtype, sm, vocabulary
from kaudit_kernels.triton.launch_sample import sample

LOGITS_MASK = (
    Kernel(
        "vectorised_logits_mask",
        requires=(
            sm.at_least(75),  # the oldest that NVRTC 13 compiles for
            dtype.any(),  # logits are float32 in every step
            *ANYWHERE,
            vocabulary.multiple_of(WORD),  # rows of whole words, so that each starts on a 16-byte boundary
            TOKENWISE,
        ),
        launch=logits_mask,
        functions=("^logits_mask_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager.logits_mask),
)

SAMPLE = (
    Kernel(
        "fused_sample",
        requires=(
            AMPERE,
            dtype.any(),
            *ANYWHERE,
            # The running sums of so many take 64 KiB of shared memory, of twice as many more than the 99 of some SMs.
            vocabulary.at_most(524_288),
            TOKENWISE,
        ),
        # More than 32,768 logits spill out of the registers of 1024 threads. Greedily, a row of 131,072 takes 10 us and
        # eager torch 12 (H200), but one of 151,936 takes 15, and 8 take 15 where torch takes 14; 32 rows pay again, 16
        # against 21. With top-k and top-p, one row of 131,072 takes 570 us and torch 431; 8 of 151,936 1035 and 1123.
        worth=(vocabulary.at_most(131_072).when(batch.at_most(8)),),
        launch=sample,
        functions=("^sample_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager_sampling.sample),
)
