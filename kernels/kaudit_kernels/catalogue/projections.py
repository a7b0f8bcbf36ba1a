"""The four matrix products of a layer."""

from kaudit_kernels import eager
from kaudit_kernels.catalogue.shared import TOKENWISE
from kaudit_kernels.dispatch import Kernel

QKV_PROJ = O_PROJ = GATE_UP_PROJ = DOWN_PROJ = (Kernel("eager", requires=(TOKENWISE,), launch=eager.project),)
