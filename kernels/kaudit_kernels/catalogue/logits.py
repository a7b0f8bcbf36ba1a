"""What happens to the logits: the grammar, the choice of a token. They are float32 in every step."""

from kaudit_kernels import eager, eager_sampling
from kaudit_kernels.catalogue.shared import AMPERE, ANY_STRIDES, ANYWHERE, TOKENWISE
from kaudit_kernels.cuda.logits_mask import WORD, logits_mask
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import batch, dtype, sampling, sm, vocabulary
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
            # Gemma 4's. With top-k and top-p a row of so many compiles for 36 s beside an H200, of twice as many for 13
            # minutes on two cores.
            vocabulary.at_most(262_144),
            TOKENWISE,
        ),
        # More than 32,768 logits spill out of the registers of 1024 threads, and a row is one block, whatever the SMs
        # that have none; 32 rows pay at any length that was timed. Against eager torch on an H200, in us:
        worth=(
            # One row of 131,072: 10 against 12; of 151,936: 15 against 12. Of 151,936, 8 rows: 15 against 14; 32: 16
            # against 21. Between 8 and 32 rows nothing was timed.
            vocabulary.at_most(131_072).when(batch.at_most(31), sampling.one_of("greedy")),
            # With top-k and top-p, one row of 32,768: 74 against 288; of 131,072: 570 against 431; of 151,936: 1030
            # against 476. Of 151,936, 8 rows: 1035 against 1123; 32: 1450 against 1926. No other number of
            # rows was timed, nor one row between the first two.
            vocabulary.at_most(32_768).when(batch.at_most(7), sampling.one_of("random")),
        ),
        launch=sample,
        functions=("^sample_kernel",),
    ),
    Kernel("eager", requires=(ANY_STRIDES,), launch=eager_sampling.sample),
)
