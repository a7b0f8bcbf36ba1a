"""Compile every Triton kernel for one architecture, without a GPU: `compile_triton.py 90` prints their shared memory.

A script of its own, since in the process of the tests the kernels may be interpreted ones.
"""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kaudit_kernels.triton.flash_prefill import flash_prefill_kernel
from kaudit_kernels.triton.norm import add_rms_norm_kernel, rms_norm_kernel
from kaudit_kernels.triton.split_kv_decode import split_kv_decode_kernel, split_kv_merge_kernel

TYPES = {
    **dict.fromkeys(("q", "k", "v", "out", "x", "residual", "weight", "total"), "*bf16"),
    **dict.fromkeys(("part_acc", "part_m", "part_l"), "*fp32"),
    **dict.fromkeys(("q_start", "kv_lens", "page_table"), "*i32"),
    **dict.fromkeys(("pages", "window", "splits"), "i32"),
    **dict.fromkeys(("scale", "epsilon"), "fp32"),
    "kv_start": "*i64",
}

HEADS = {"KV_HEADS": 8, "GROUP": 4, "HEAD_DIM": 128}
TILE = {"BLOCK_M": 128, "BLOCK_N": 64}
# fmt: off
VARIANTS = {
    "causal": (flash_prefill_kernel, HEADS | TILE | {"CAUSAL": True, "WINDOWED": False, "PAGE_SIZE": 0}, 8, 3),
    "window paged": (flash_prefill_kernel, HEADS | TILE | {"CAUSAL": True, "WINDOWED": True, "PAGE_SIZE": 16}, 8, 3),
    "unmasked": (flash_prefill_kernel, HEADS | TILE | {"CAUSAL": False, "WINDOWED": False, "PAGE_SIZE": 0}, 8, 3),
    "one query": (
        flash_prefill_kernel,
        HEADS | {"BLOCK_M": 16, "BLOCK_N": 64, "CAUSAL": True, "WINDOWED": False, "PAGE_SIZE": 8}, 4, 3,
    ),
    "page 16": (
        split_kv_decode_kernel, HEADS | {"WINDOWED": False, "PAGE_SIZE": 16, "BLOCK_N": 16, "ROWS": 16}, 4, 5,
    ),
    "page 128": (
        split_kv_decode_kernel, HEADS | {"WINDOWED": True, "PAGE_SIZE": 128, "BLOCK_N": 64, "ROWS": 16}, 4, 5,
    ),
    "merge": (split_kv_merge_kernel, {"HEAD_DIM": 128, "SPLITS": 64}, 4, 3),
    "norm": (rms_norm_kernel, {"HIDDEN": 4096, "BLOCK": 4096}, 8, 3),
    "add and norm": (add_rms_norm_kernel, {"HIDDEN": 12288, "BLOCK": 16384}, 16, 3),
}
# fmt: on

shared = {}
for variant, (kernel, constants, warps, stages) in VARIANTS.items():
    signature = {name: "constexpr" if name in constants else TYPES[name] for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": warps, "num_stages": stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options)
    shared[variant] = compiled.metadata.shared
print(json.dumps(shared))
