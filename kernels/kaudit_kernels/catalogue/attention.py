"""Attention over the KV cache."""

from kaudit_kernels import eager_attention
from kaudit_kernels.catalogue.shared import AMPERE, CPU, PLAIN_ATTENTION, UNQUANTISED, WHOLE_GROUPS
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import (
    dtype,
    features,
    group,
    head_dim,
    kv_layout,
    mask,
    page_size,
    q_len,
    tiles,
    v_head_dim,
    visible_keys,
)
from kaudit_kernels.sdpa import fused_sdpa
from kaudit_kernels.triton import launch as triton

ATTENTION = (
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
)
