"""Per op, the kernels that can serve it, fastest first, and what each one needs. The page to read.

`requires`: otherwise it is wrong or does not launch. `worth`: otherwise the next one is faster. A feature that no line
names is denied.
"""

from kaudit_kernels import eager, eager_attention
from kaudit_kernels.cuda.silu_mul import VECTOR, silu_mul
from kaudit_kernels.dispatch import Catalogue, Kernel
from kaudit_kernels.requirements import (
    dtype,
    features,
    group,
    head_dim,
    hidden,
    intermediate,
    kv_dtype,
    kv_heads,
    kv_layout,
    mask,
    page_size,
    q_len,
    sm,
    tiles,
    v_head_dim,
    visible_keys,
)
from kaudit_kernels.sdpa import fused_sdpa
from kaudit_kernels.triton import launch as triton

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

CATALOGUE: Catalogue = {
    "rms_norm": (
        Kernel(
            "fused_rms_norm",
            requires=(
                AMPERE,
                dtype.one_of("fp32", "fp16", "bf16"),
                hidden.at_most(16384),  # a row lives in registers: 32 a thread at 16 warps
                TOKENWISE,
            ),
            launch=triton.rms_norm,
            functions=("^rms_norm_kernel",),
        ),
        Kernel("eager", requires=(TOKENWISE,), launch=eager.rms_norm),
    ),
    "qkv_proj": (Kernel("eager", requires=(TOKENWISE,), launch=eager.project),),
    "rope_kv_write": (
        Kernel(
            "eager",
            requires=(
                head_dim.multiple_of(2),  # rotation turns pairs
                TOKENWISE,
            ),
            launch=eager.rope_kv_write,
        ),
    ),
    "attention": (
        Kernel(
            "split_kv_decode",
            requires=(
                AMPERE,
                dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
                UNQUANTISED,
                head_dim.one_of(64, 128),  # powers of two, as all Triton tiles; 256 needs 128 KiB of shared memory
                v_head_dim.same_as("head_dim"),
                WHOLE_GROUPS,
                group.at_most(16),  # the heads of a group are the 16 rows of one tensor-core tile
                kv_layout.one_of("paged"),
                page_size.multiple_of(16),  # a K tile lies in one page, and a tensor core takes no fewer than 16 keys
                mask.one_of("none", "causal", "window"),
                q_len.at_most(1),
                PLAIN_ATTENTION,
            ),
            worth=(
                visible_keys.at_least(2 * triton.MIN_SPLIT),  # less is one part, and the merge a launch for nothing
                tiles.at_most("sm_count"),  # more tiles than SMs: the grid is full without a split
            ),
            launch=triton.split_kv_decode,
            functions=("^split_kv_decode_kernel", "^split_kv_merge_kernel"),
        ),
        Kernel(
            "flash_prefill",
            requires=(
                AMPERE,
                dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
                UNQUANTISED,
                head_dim.one_of(64, 128),  # powers of two, as all Triton tiles; 256 needs 192 KiB of shared memory
                v_head_dim.same_as("head_dim"),
                WHOLE_GROUPS,
                kv_layout.one_of("contiguous", "ragged", "paged"),  # any page size: every key looks up its own row
                mask.one_of("none", "causal", "window"),
                PLAIN_ATTENTION,
            ),
            launch=triton.flash_prefill,
            functions=("^flash_prefill_kernel",),
        ),
        Kernel(
            "fused_sdpa",
            requires=(
                CPU,
                dtype.one_of("fp32", "fp16", "bf16"),
                UNQUANTISED,
                v_head_dim.same_as("head_dim"),  # else torch takes its math path without a word
                WHOLE_GROUPS,
                kv_layout.one_of("contiguous", "ragged"),  # it has no page table
                mask.one_of("none", "causal", "window", "custom", "tree"),
                features.only("grammar", "speculative_tree"),
            ),
            launch=fused_sdpa,
            functions=("^aten::_scaled_dot_product_flash_attention_for_cpu$",),
        ),
        Kernel(
            "eager",
            requires=(
                WHOLE_GROUPS,
                features.only("prefix_share", "speculative_tree", "grammar", "softcap", "sinks"),
            ),
            launch=eager_attention.attention,
        ),
    ),
    "o_proj": (Kernel("eager", requires=(TOKENWISE,), launch=eager.project),),
    "add_rms_norm": (
        Kernel(
            "fused_rms_norm",
            requires=(
                AMPERE,
                dtype.one_of("fp32", "fp16", "bf16"),
                hidden.at_most(16384),  # a row lives in registers: 32 a thread at 16 warps
                TOKENWISE,
            ),
            launch=triton.add_rms_norm,
            functions=("^add_rms_norm_kernel",),
        ),
        Kernel("eager", requires=(TOKENWISE,), launch=eager.add_rms_norm),
    ),
    "gate_up_proj": (Kernel("eager", requires=(TOKENWISE,), launch=eager.project),),
    "silu_mul": (
        Kernel(
            "vectorised_silu_mul",
            requires=(
                AMPERE,
                dtype.one_of("fp16", "bf16"),
                intermediate.multiple_of(VECTOR),  # 16-byte accesses: each row starts on a 16-byte boundary
                TOKENWISE,
            ),
            launch=silu_mul,
            functions=("silu_mul_kernel",),
        ),
        Kernel("eager", requires=(TOKENWISE,), launch=eager.silu_mul),
    ),
    "down_proj": (Kernel("eager", requires=(TOKENWISE,), launch=eager.project),),
    "logits_mask": (Kernel("eager", requires=(TOKENWISE,), launch=eager.logits_mask),),
    "sample": (Kernel("eager", requires=(TOKENWISE,), launch=eager.sample),),
}
