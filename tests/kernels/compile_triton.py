"""Compile every Triton kernel for one architecture, without a GPU: `compile_triton.py 90` prints their shared memory.

A script of its own, since in the process of the tests the kernels may be interpreted ones.
"""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import NVMMASharedLayout

from kaudit_kernels.triton.cascade_decode import cascade_prefix_kernel
from kaudit_kernels.triton.flash_prefill import flash_prefill_kernel
from kaudit_kernels.triton.flash_prefill_tma import flash_prefill_tma_kernel
from kaudit_kernels.triton.launch_prefill import REGISTERS, SPACIOUS, TILES, TMA_TILES
from kaudit_kernels.triton.launch_prefill import WIDE as WIDE_TILE
from kaudit_kernels.triton.norm import add_rms_norm_kernel, rms_norm_kernel
from kaudit_kernels.triton.quantise_rows import quantise_rows_kernel
from kaudit_kernels.triton.rope_kv_write import rope_kv_write_kernel
from kaudit_kernels.triton.sample import sample_kernel
from kaudit_kernels.triton.skinny_gemm import skinny_gemm_kernel, sum_parts_kernel
from kaudit_kernels.triton.split_kv_decode import split_kv_decode_kernel, split_kv_merge_kernel

TYPES = {
    **dict.fromkeys(("q", "k", "v", "out", "x", "residual", "weight", "total"), "*bf16"),
    **dict.fromkeys(("part_acc", "part_m", "part_l"), "*fp32"),
    **dict.fromkeys(("q_start", "kv_lens", "page_table"), "*i32"),
    **dict.fromkeys(("pages", "window", "batch", "shared", "chunk", "prefix_parts"), "i32"),
    "tree": "i64",
    **dict.fromkeys(("scale", "epsilon"), "fp32"),
    **dict.fromkeys(("logits", "draws"), "*fp32"),
    **dict.fromkeys(("kv_start", "tokens"), "*i64"),
    "vocabulary": "i32",
    "qkv": "*bf16",
    "slots": "*i64",
    **dict.fromkeys(("cosines", "sines", "k_scale", "v_scale", "parts", "scales", "sinks"), "*fp32"),
    **dict.fromkeys(("values", "bits"), "*u8"),
    "bits_start": "*i64",
    "tiles": "i32",
    "count": "i32",
}
COUNTED = {"tokens": "i32"}
BYTES = {"k": "*u8", "v": "*u8"}

HEADS = {"KV_HEADS": 8, "GROUP": 4, "HEAD_DIM": 128}
ROPE = {"Q_HEADS": 32, "KV_HEADS": 8, "HEAD_DIM": 192, "V_HEAD_DIM": 128}
ROPE |= {"Q_BLOCK": 8, "KV_BLOCK": 4, "PAIRS": 128, "V_BLOCK": 128}
UNSCALED = {"k_scale": None, "v_scale": None}
SKINNY = {"IN": 4096, "BLOCK_K": 64, "BLOCK_N": 128}
DIMS = {"V_DIM": 128, "CAP": 0.0, "PAGE_SIZE": 16, "BLOCK_N": 64, "BLOCK_D": 128, "BLOCK_V": 128}
DECODE = HEADS | DIMS | {"MASK": "none", "WHOLE": False, "ROWS": 4, "BATCH": 64, "BLOCK_M": 16}
PREFIX = HEADS | DIMS | {"BLOCK_M": 64}
MERGE = DECODE | {"BLOCK_P": 32}
WIDE = {"HEAD_DIM": 256, "V_DIM": 256, "BLOCK_N": 16, "BLOCK_D": 256, "BLOCK_V": 256}
PREFILL = HEADS | {"V_HEAD_DIM": 128, "DIMS": 128, "V_DIMS": 128, "CAP": 0.0, "PAGE_SIZE": 16}
PREFILL |= {"BLOCK_M": TILES[128].block_m, "BLOCK_N": TILES[128].block_n}
PREFILL_WIDE = {"HEAD_DIM": 256, "V_HEAD_DIM": 256, "DIMS": 256, "V_DIMS": 256}
PREFILL_WIDE |= {"BLOCK_M": TILES[256].block_m, "BLOCK_N": TILES[256].block_n}
PREFILL_TILES = {dim: (tile.warps, tile.stages) for dim, tile in TILES.items()}
PLAIN = UNSCALED | {"sinks": None, "bits": None, "bits_start": None}
# fmt: off
VARIANTS = {
    "prefill": (flash_prefill_kernel, PREFILL | PLAIN | {"MASK": "causal"}, *PREFILL_TILES[128]),
    "prefill of few rows": (flash_prefill_kernel, PREFILL | PLAIN | {"MASK": "none", "BLOCK_M": 16}, 4, 3),
    "prefill of head dim 80": (
        flash_prefill_kernel, PREFILL | UNSCALED | {"HEAD_DIM": 80, "MASK": "custom", "CAP": 72.1}, *PREFILL_TILES[128],
    ),
    "prefill of int8, head dims 192 and 128": (
        flash_prefill_kernel, PREFILL | PREFILL_WIDE | {"HEAD_DIM": 192, "V_HEAD_DIM": 128, "MASK": "tree"},
        *PREFILL_TILES[256], {"k": "*i8", "v": "*i8"},
    ),
    "prefill of head dim 256": (
        flash_prefill_kernel, PREFILL | PREFILL_WIDE | PLAIN | {"MASK": "window"}, *PREFILL_TILES[256],
    ),
    "decode": (split_kv_decode_kernel, DECODE | UNSCALED, 4, 3),
    "decode of a tree, head dim 256": (
        split_kv_decode_kernel, DECODE | UNSCALED | WIDE | {"MASK": "tree", "ROWS": 128, "BLOCK_M": 64}, 8, 4,
    ),
    "decode of int8": (
        split_kv_decode_kernel, DECODE | {"MASK": "window", "CAP": 72.1, "WHOLE": True}, 4, 4,
        {"k": "*i8", "v": "*i8"},
    ),
    "decode of e5m2": (split_kv_decode_kernel, DECODE, 4, 4, {"k": "*fp8e5", "v": "*fp8e5"}),
    "prefix": (cascade_prefix_kernel, PREFIX | UNSCALED, 8, 3, COUNTED),
    "merge": (split_kv_merge_kernel, MERGE, 4, 3),
    "norm": (rms_norm_kernel, {"HIDDEN": 1000, "BLOCK": 1024, "ROWS": 4}, 8, 3, COUNTED),
    "add and norm": (add_rms_norm_kernel, {"HIDDEN": 12288, "BLOCK": 16384, "ROWS": 1}, 16, 3, COUNTED),
    "rope": (rope_kv_write_kernel, ROPE | UNSCALED | {"ROPE": "neox", "KV_DTYPE": "bf16", "LARGEST": 0.0}, 4, 3),
    "rope to e4m3": (
        rope_kv_write_kernel, ROPE | {"ROPE": "none", "KV_DTYPE": "fp8_e4m3", "LARGEST": 448.0}, 4, 3, BYTES,
    ),
    "rope to e5m2": (
        rope_kv_write_kernel, ROPE | {"ROPE": "interleaved", "KV_DTYPE": "fp8_e5m2", "LARGEST": 57344.0}, 4, 3, BYTES,
    ),
    "rope to int8": (
        rope_kv_write_kernel, ROPE | {"ROPE": "neox", "KV_DTYPE": "int8", "LARGEST": 127.0}, 4, 3, BYTES,
    ),
    "16 tokens": (
        skinny_gemm_kernel, SKINNY | {"BLOCK_K": 256, "BLOCK_N": 32, "OUT": 2048, "SPLITS": 2, "ROWS": 16}, 4, 4,
        COUNTED | {"out": "*fp32"},
    ),
    "64 tokens": (skinny_gemm_kernel, SKINNY | {"OUT": 28672, "SPLITS": 1, "ROWS": 64}, 4, 5, COUNTED),
    "sum": (sum_parts_kernel, {"SPLITS": 4, "BLOCK": 512}, 4, 3),
    "quantise": (quantise_rows_kernel, {"LARGEST": 448.0, "TINY": 1e-12, "WIDTH": 14336, "BLOCK": 4096}, 8, 3),
    "greedy": (sample_kernel, {"TOP_K": 0, "TOP_P": 0.0, "BLOCK": 32768}, 32, 3),
    "top-k and top-p": (sample_kernel, {"TOP_K": 50, "TOP_P": 0.9, "BLOCK": 32768}, 32, 3),
}
# fmt: on
if int(sys.argv[1]) in SPACIOUS:
    wide = (
        PREFILL | PREFILL_WIDE | PLAIN | {"MASK": "causal", "BLOCK_M": WIDE_TILE.block_m, "BLOCK_N": WIDE_TILE.block_n}
    )
    VARIANTS["prefill of head dim 256, wide"] = flash_prefill_kernel, wide, WIDE_TILE.warps, WIDE_TILE.stages
TMA = (64, "causal", 0), (128, "window", 128), (256, "causal", 64)  # shared memory hangs on the head dim alone
for dim, mask, page_size in TMA if sys.argv[1] == "90" else ():
    tile = TMA_TILES[dim]
    box = f"tensordesc<bf16[{tile.block_n},{dim}],{NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16)!r}>"
    constants = HEADS | {"HEAD_DIM": dim, "BLOCK_N": tile.block_n, "STAGES": tile.stages, "TURNS": tile.turns}
    constants |= {"MASK": mask, "PAGE_SIZE": page_size}
    VARIANTS[f"TMA {mask}, head dim {dim}"] = flash_prefill_tma_kernel, constants, 4, 1, {"k": box, "v": box}

shared = {}
for variant, (kernel, constants, warps, stages, *own) in VARIANTS.items():
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = TYPES | dict(*own)  # some names are of another type in one kernel
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = (GluonASTSource if kernel.is_gluon() else ASTSource)(
        kernel, signature=signature, constexprs=constants, attrs=aligned
    )
    options = {"num_warps": warps, "num_stages": stages}
    if kernel is flash_prefill_tma_kernel:
        options["maxnreg"] = REGISTERS
    compiled = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options)
    shared[variant] = compiled.metadata.shared
print(json.dumps(shared))
