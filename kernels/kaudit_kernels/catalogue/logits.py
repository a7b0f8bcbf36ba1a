"""What happens to the logits: the grammar, the choice of a token."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import TOKENWISE
from kaudit_kernels.dispatch import Kernel

LOGITS_MASK = (Kernel("eager", requires=(TOKENWISE,), launch=eager.logits_mask),)

SAMPLE = (Kernel("eager", requires=(TOKENWISE,), launch=eager.sample),)
