"""What happens to the logits: the grammar, the choice of a token. They are float32 in every step."""

from kaudit_kernels import eager, eager_sampling
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, TOKENWISE
from kaudit_kernels.cuda.logits_mask import WORD, logits_mask
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import sm, vocabulary
from kaudit_kernels.triton.launch_sample import sample

LOGITS_MASK = (
    Kernel(
        "vectorised_logits_mask",
        requires=(
            sm.at_least(75),  # the oldest that NVRTC 13 compiles for
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
        requires=(AMPERE, TOKENWISE),
        # The largest row that was timed: 64 of them take 13 us greedily, eager torch 25 (H200), although more than
        # 32,768 logits spill out of the registers of 1024 threads.
        worth=(vocabulary.at_most(131_072),),
        launch=sample,
        functions=("^sample_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager_sampling.sample),
)
