"""Attention over the KV cache."""

from kaudit_kernels import eager_attention
from kaudit_kernels.catalogue.shared import (
    AMPERE,
    ANY_STRIDES,
    ATTENTION_FEATURES,
    CPU,
    E4M3,
    HISTORIES,
    OUTSIDE,
    STRIDES,
    TOKENLESS,
    UNQUANTISED,
    WHOLE_GROUPS,
)
from kaudit_kernels.cuda.split_kv_decode import warp_decode
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.requirements import (
    batch,
    dtype,
    features,
    head_dim,
    kv_dtype,
    kv_layout,
    mask,
    page_size,
    q_len,
    query_rows,
    requests,
    shared_mib,
    sm,
    v_head_dim,
)
from kaudit_kernels.sdpa import fused_sdpa
from kaudit_kernels.triton import launch_decode, launch_prefill

# Each program holds the lengths of all requests, to find its own. Of 4096 they are 32 registers a thread. With KV of 16
# bits it has 158 in all on sm_90, and as many programs stay on an SM as its shared memory has room for; with 8 bits it
# is one program less than that. Of 8192 requests it has 225, and of 16,384 they are spilled.
REQUESTS = batch.at_most(4096)

ATTENTION = (
    Kernel(
        "cascade_decode",
        requires=(
            AMPERE,
            E4M3,
            dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
            kv_dtype.same_as("dtype", "fp8_e4m3", "fp8_e5m2", "int8"),
            head_dim.one_of(64, 80, 96, 128, 192, 256),
            v_head_dim.one_of(64, 80, 96, 128, 192, 256),
            WHOLE_GROUPS,
            kv_layout.one_of("paged"),
            mask.one_of("none", "causal", "tree"),  # under these every new token sees all of the prefix
            q_len.at_most(8),
            REQUESTS,
            ATTENTION_FEATURES,
        ),
        worth=(
            # One launch more, by which the prefix is read once and not by every request. What is read again comes from
            # the L2: little of it costs less than the launch. Times as fast as split_kv_decode on an H200, with 4 KiB a
            # token: 4 MiB 0.89 to 1.08, 16 MiB 1.08 to 1.13, 64 MiB 1.30; 4 requests of 4 MiB 0.75, and of 8 MiB 1.00.
            # With 512 bytes a token: 8 MiB 0.94 to 1.01.
            requests.at_least(8),
            shared_mib.at_least(16),
            kv_dtype.one_of("fp16", "bf16"),  # of e4m3, warp_decode is faster: 0.66 to 0.88, up to 32 MiB
        ),
        launch=launch_decode.cascade_decode,
        functions=("^cascade_prefix_kernel", "^split_kv_decode_kernel", "^split_kv_merge_kernel"),
        replays=True,  # for the prefix of its capture
    ),
    Kernel(
        "warp_decode",
        requires=(
            AMPERE,  # mma.m16n8k16
            sm.at_least(89).when(kv_dtype.one_of("fp8_e4m3", "fp8_e5m2")),  # both by the fp8 cvt instructions
            dtype.one_of("fp16", "bf16"),
            kv_dtype.same_as("dtype", "fp8_e4m3", "fp8_e5m2", "int8"),
            head_dim.one_of(64, 128, 256),  # eight lanes share a row of V, in accesses of 8 or 16 bytes
            v_head_dim.same_as("head_dim"),
            WHOLE_GROUPS,
            query_rows.at_most(8),  # the columns of one product; the keys are its 16 rows
            kv_layout.one_of("paged"),
            mask.one_of("none", "causal", "window"),
            REQUESTS,  # of the merge
            features.only("prefix_share", "softcap", "sinks", *OUTSIDE, *HISTORIES, *TOKENLESS),
        ),
        # Stored bytes become numbers in registers, two an instruction; Triton reads V from shared memory by the byte.
        # Of e4m3, 64 requests of 4096 keys: 3.8 TB/s against 2.4 on an H200. 16 bits are bound by memory: 4.1 against
        # 4.0 there, but 3.6 against 3.8 for one request of 131,072.
        worth=(kv_dtype.one_of("fp8_e4m3", "fp8_e5m2", "int8"),),
        launch=warp_decode,
        functions=("warp_decode_kernel<",),
        also=("^split_kv_merge_kernel",),  # unless each request is one part; in a graph nobody knows
        replays=True,
    ),
    Kernel(
        "split_kv_decode",
        requires=(
            AMPERE,
            E4M3,
            dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
            kv_dtype.same_as("dtype", "fp8_e4m3", "fp8_e5m2", "int8"),
            head_dim.one_of(64, 80, 96, 128, 192, 256),
            v_head_dim.one_of(64, 80, 96, 128, 192, 256),
            WHOLE_GROUPS,
            kv_layout.one_of("paged"),  # any page size: every key looks up its own row
            mask.one_of("none", "causal", "window", "tree"),
            q_len.at_most(8),  # a tree is 8 by 8 bits, one argument
            REQUESTS,
            ATTENTION_FEATURES,
        ),
        # More rows are tiles that read the keys again: of 16 requests over 4096 keys, 128 rows take 54 us on an H200,
        # and 256 take 100, flash_prefill 115 for either. Lost is what flash_prefill_tma could have for 256 of bf16 on
        # pages of 128: 58 us. But it splits no keys, so that one request would have a program for each KV head and
        # tile, and it takes neither features nor 8 bits, and that on one architecture: no bound tells all this.
        worth=(query_rows.at_most(256),),
        launch=launch_decode.split_kv_decode,
        functions=("^split_kv_decode_kernel",),
        also=("^split_kv_merge_kernel",),  # unless each request is one part; in a graph nobody knows
        replays=True,
    ),
    Kernel(
        "flash_prefill_tma",
        requires=(
            sm.one_of(90),  # wgmma is Hopper's alone: the architectures after it dropped the instruction
            dtype.one_of("fp16", "bf16"),
            UNQUANTISED,
            head_dim.one_of(64, 128, 256),  # K as one TMA box, its rows of whole 128-byte swizzles
            v_head_dim.same_as("head_dim"),
            WHOLE_GROUPS,
            kv_layout.one_of("contiguous", "ragged", "paged"),
            page_size.multiple_of(128).when(head_dim.one_of(64, 128)),  # one copy is so many keys, all of one page
            page_size.multiple_of(64).when(head_dim.one_of(256)),
            mask.one_of("none", "causal", "window"),
            features.only("prefix_share", *OUTSIDE, *HISTORIES, *TOKENLESS),
        ),
        worth=(
            # A tile of fewer rows leaves one of its two warpgroups idle: 64 rows over 4096 keys take 68 us where
            # flash_prefill takes 60, 128 rows 67 where it takes 79 (H200).
            query_rows.at_least(128),
            # 4 x 4096 causal on an H200: 544 TFLOP/s against 436 of flash_prefill, 635 against 495 at head dim 256; but
            # 365 against 403 at 64, where the exponentials weigh twice as much beside the products.
            head_dim.at_least(128),
        ),
        launch=launch_prefill.flash_prefill_tma,
        functions=("^flash_prefill_tma_kernel",),
        replays=True,
    ),
    Kernel(
        "flash_prefill",
        requires=(
            AMPERE,
            E4M3,
            dtype.one_of("fp16", "bf16"),  # tensor cores would round fp32 to tf32
            kv_dtype.same_as("dtype", "fp8_e4m3", "fp8_e5m2", "int8"),
            head_dim.at_most(256),  # padded to a power of two; the output of 64 rows of 512 would be all registers
            v_head_dim.at_most(256),
            WHOLE_GROUPS,
            kv_layout.one_of("contiguous", "ragged", "paged"),  # any page size: every key looks up its own row
            mask.one_of("none", "causal", "window", "custom", "tree"),
            batch.at_most(65_535),  # the z of a grid holds no more
            ATTENTION_FEATURES,
        ),
        launch=launch_prefill.flash_prefill,
        functions=("^flash_prefill_kernel",),
        replays=True,
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
            features.only("speculative_tree", *OUTSIDE, *TOKENLESS, *STRIDES),
        ),
        launch=fused_sdpa,
        functions=("^aten::_scaled_dot_product_flash_attention_for_cpu$",),
    ),
    Kernel(
        "eager",
        requires=(
            WHOLE_GROUPS,
            ANY_STRIDES,
        ),
        launch=eager_attention.attention,  # replays nothing: its loops are Python's, over the lengths of its capture
    ),
)
