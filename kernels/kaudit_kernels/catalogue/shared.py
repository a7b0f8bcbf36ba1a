"""Requirements that several kernels of the catalogue share."""

from kaudit_kernels.requirements import features, kv_dtype, kv_heads, sm

# cp.async and bf16 tensor-core instructions, which the Triton kernels are built on, came with sm_80.
AMPERE = sm.at_least(80)
# Without a GPU. torch has fused kernels on a GPU too, but the point of this engine is its own.
CPU = sm.at_most(0)
# Ops that take each token by itself see none of what these change.
TOKENWISE = features.only("prefix_share", "speculative_tree", "grammar", "softcap", "sinks")
# Shared pages are the page table's business, the grammar that of the logits: attention sees neither.
PLAIN_ATTENTION = features.only("prefix_share", "grammar")
# The product of scores and values needs K and V as they are: a quantised cache would have to be scaled in the loop.
UNQUANTISED = kv_dtype.same_as("dtype")
WHOLE_GROUPS = kv_heads.divides("q_heads")
