"""Compile what the Triton kernels of the catalogue would be launched with on one architecture, without a GPU:
`compile_triton.py 90` prints the shared memory of each.

Problems stand here by op: every kernel of the op that takes one is compiled for it, so that a new kernel needs a line
here only if it takes none. A script of its own, since in the process of the tests the kernels may be interpreted ones.
"""

import json
import sys
from typing import Any

import triton
from kernel_problems import BASE, but, chunk, decode, prefill
from launches import catching, launch
from torch import Tensor
from triton._utils import canonicalize_dtype
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from kaudit_kernels.catalogue import CATALOGUE

FP8 = {"weight_dtype": "fp8_e4m3"}
DEEPSEEK = {"head_dim": 192, "v_head_dim": 128}
PROJECTED = [decode(64), decode(64, batch=64), decode(64, **FP8)]
NORMED = [decode(64, q_heads=128), prefill(1000, q_heads=25, kv_heads=5, head_dim=40)]
PROBLEMS: dict[str, list[dict[str, Any]]] = {
    **dict.fromkeys(("rms_norm", "add_rms_norm"), NORMED),
    **dict.fromkeys(("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), PROJECTED),
    "rope_kv_write": [
        decode(64, **DEEPSEEK),
        decode(64, **DEEPSEEK, kv_dtype="fp8_e4m3", rope="none"),
        decode(64, **DEEPSEEK, kv_dtype="fp8_e5m2", rope="interleaved"),
        decode(64, **DEEPSEEK, kv_dtype="int8"),
    ],
    "attention": [
        decode(4096, batch=64),
        decode(4096, batch=512, kv_dtype="int8", mask="window", window=1024, features="softcap"),
        decode(9000, kv_dtype="fp8_e5m2", features="prefix_share"),
        chunk(8, 4096, head_dim=256, q_heads=64, mask="tree", features="speculative_tree"),
        prefill(4096, kv_layout="contiguous"),
        prefill(4096, head_dim=64, page_size=128, mask="window", window=1000),
        prefill(4096, head_dim=80, mask="custom", features="softcap sinks"),
        prefill(4096, head_dim=256, page_size=64),
        chunk(100, 4096, **DEEPSEEK, kv_dtype="int8", mask="tree", features="speculative_tree"),
    ],
    "sample": [decode(64), decode(64, features="top_k top_p")],
}


def main(arch: int) -> None:
    """Prints a JSON object: bytes of shared memory of all that is compiled."""
    shared: dict[str, int] = {}

    def compiled(kernel: Any, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        source = _source(kernel, given, options)
        name = f"{kernel.__name__} {[*source.signature.values(), *source.constants.values()]}"
        if name not in shared:
            ours = {each: value for each, value in options.items() if each in ("num_warps", "num_stages", "maxnreg")}
            shared[name] = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=ours).metadata.shared

    with catching(compiled):
        for op, problems in PROBLEMS.items():
            for problem in (but(BASE, **changes, sm=arch) for changes in problems):
                for kernel in CATALOGUE[op]:
                    if kernel.functions and all(unmet.worth for unmet in kernel.unmet(problem)):
                        launch(op, kernel, problem)
    print(json.dumps(shared))


def _source(kernel: Any, given: tuple[Any, ...], options: dict[str, Any]) -> ASTSource:
    """The kernel with the arguments as Triton would have it; ints that it specialises on stay general."""
    constants = {name: value for name, value in options.items() if name in kernel.arg_names}
    arguments = dict(zip(kernel.arg_names, given, strict=False))
    constants |= {name: None for name, value in arguments.items() if value is None}
    signature = {name: "constexpr" if name in constants else _type(arguments[name]) for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    kind = GluonASTSource if kernel.is_gluon() else ASTSource
    return kind(kernel, signature=signature, constexprs=constants, attrs=aligned)


def _type(argument: Any) -> str:
    match argument:
        case Tensor():
            return f"*{canonicalize_dtype(argument.dtype)}"
        case int():
            return "i32" if -(2**31) <= argument < 2**31 else "i64"
        case float():
            return "fp32"
        case _:  # Gluon's TensorDescriptor
            box = ",".join(map(str, argument.block_shape))
            return f"tensordesc<{canonicalize_dtype(argument.base.dtype)}[{box}],{argument.layout!r}>"


main(int(sys.argv[1]))
