"""Per op, the kernels that can serve it, fastest first, and what each one needs. The pages to read.

`requires`: otherwise it is wrong or does not launch. `worth`: otherwise the next one is faster. A feature that no line
names is denied.
"""

from kaudit_kernels.catalogue.activations import SILU_MUL
from kaudit_kernels.catalogue.attention import ATTENTION
from kaudit_kernels.catalogue.logits import LOGITS_MASK, SAMPLE
from kaudit_kernels.catalogue.norms import ADD_RMS_NORM, RMS_NORM
from kaudit_kernels.catalogue.projections import DOWN_PROJ, GATE_UP_PROJ, O_PROJ, QKV_PROJ
from kaudit_kernels.catalogue.rope import ROPE_KV_WRITE
from kaudit_kernels.dispatch import Catalogue

CATALOGUE: Catalogue = {
    "rms_norm": RMS_NORM,
    "qkv_proj": QKV_PROJ,
    "rope_kv_write": ROPE_KV_WRITE,
    "attention": ATTENTION,
    "o_proj": O_PROJ,
    "add_rms_norm": ADD_RMS_NORM,
    "gate_up_proj": GATE_UP_PROJ,
    "silu_mul": SILU_MUL,
    "down_proj": DOWN_PROJ,
    "logits_mask": LOGITS_MASK,
    "sample": SAMPLE,
}
