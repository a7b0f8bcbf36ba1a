"""Requirements that several kernels of the catalogue share."""

from kaudit_kernels.requirements import features, kv_dtype, kv_heads, kv_layout, mask, sm

# cp.async and bf16 tensor-core instructions, which the Triton kernels are built on, came with sm_80.
AMPERE = sm.at_least(80)
# Triton refuses to convert e4m3 without the instruction for it. e5m2 is the upper half of an fp16: no instruction.
E4M3 = sm.at_least(89).when(kv_dtype.one_of("fp8_e4m3"))
# Without a GPU. torch has fused kernels on a GPU too, but the point of this engine is its own.
CPU = sm.at_most(0)
# What changes the logits, or how the step is launched: no op of the layer sees it.
OUTSIDE = ("grammar", "top_k", "top_p", "cuda_graph")
# What pages held before, and whose they were: the page table's business.
HISTORIES = ("cancelled", "preempted", "stale_branch")
# Requests without new tokens: only what looks at requests sees them.
TOKENLESS = ("idle", "vacant")
# How the layer's input, the KV cache and the logits lie in memory. A kernel that computes addresses from the shape
# alone reads other numbers.
STRIDES = ("transposed", "sliced", "broadcast")
# What attention alone looks at.
ANYWHERE = (kv_layout.any(), mask.any())
_TOKENWISE = ("prefix_share", "speculative_tree", "softcap", "sinks", *OUTSIDE, *HISTORIES, *TOKENLESS)
# Ops that take each token by itself see none of what these change.
TOKENWISE = features.only(*_TOKENWISE)
# And what lies in memory as an op before left it, or is read by torch's own ops, which take any strides.
ANY_STRIDES = features.only(*_TOKENWISE, *STRIDES)
# Attention that computes all that a feature asks of it. Shared pages are the page table's business, and a request
# without new tokens is a program that ends at once.
ATTENTION_FEATURES = features.only(
    "prefix_share", "speculative_tree", "softcap", "sinks", *OUTSIDE, *HISTORIES, *TOKENLESS
)
# The product of scores and values needs K and V as they are: a quantised cache would have to be scaled in the loop.
UNQUANTISED = kv_dtype.same_as("dtype")
WHOLE_GROUPS = kv_heads.divides("q_heads")
