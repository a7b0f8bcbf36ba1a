"""`python -m kaudit_probes.engines.flashinfer_jit MATRIX [--only GLOB] [--engine NAME]`: build what sweeps compile.

FlashInfer compiles a module when a plan first asks for it: on an H200 machine 22 s for FA2, 92 s for FA3, one after
another and inside the cell's time limit. Here ninja compiles all of a matrix's modules side by side, before the sweep.
"""

import argparse
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit.observation import Skipped
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.flashinfer import BACKENDS, refused, saying_no
from kaudit_probes.engines.flashinfer_problem import Backend, Problem, problem_of
from kaudit_probes.engines.flashinfer_reasons import unmet

Generator = Literal[
    "batch_decode", "batch_prefill", "attention_sink", "single_decode", "single_prefill", "quantization"
]


@dataclass(frozen=True)
class Module:
    """What tells one JIT module of FlashInfer from another. `quantization` packs custom masks, and has no variants."""

    generator: Generator
    backend: str = ""
    dtypes: tuple[torch.dtype, ...] = ()
    """Of Q, KV and output."""
    head_dims: tuple[int, int] = (0, 0)
    pos_encoding: str = "NONE"
    window: bool = False
    softcap: bool = False


def modules(cells: Sequence[Cell], sm: int, backends: Iterable[Backend]) -> list[Module]:
    """What the engines of these back ends need for the cells on a GPU of compute capability `sm` (90 is 9.0)."""
    needed: dict[Module, None] = {}
    for backend in backends:
        for cell in cells:
            problem = problem_of(cell, backend)
            if not isinstance(problem, Skipped):
                needed |= dict.fromkeys(_of(problem, sm))
    return list(needed)


def _of(problem: Problem, sm: int) -> Iterator[Module]:
    auto = problem.backend == "auto"
    chosen = _module("batch_prefill", problem, _backend(problem, sm))
    if problem.custom_mask:
        yield Module("quantization")
    match problem.entry:
        case "decode" if problem.backend == "cuda_cores":
            yield _module("batch_decode", problem)
        case "decode" if auto:
            yield chosen
            yield _module("batch_prefill", problem, _backend(replace(problem, entry="paged"), sm))
        case "paged" if auto and problem.q_dtype.itemsize > 1:
            yield chosen
            yield Module("quantization")  # attention=reused_wrapper is planned with a custom mask first
            kept = _module("batch_prefill", problem, "fa2")
            yield kept
            yield replace(kept, pos_encoding="NONE", window=False, softcap=False)
        case "decode" | "paged" | "ragged":
            yield chosen
        case "sink":
            yield _module("attention_sink", problem, _backend(problem, sm))
        case "single_prefill":
            yield _module("single_prefill", problem, _backend(problem, sm))
        case "single_decode" if auto:
            yield _module("single_prefill", problem, "fa2")
        case "single_decode":
            yield _module("single_decode", problem)


def _backend(problem: Problem, sm: int) -> str:
    if problem.backend in ("fa2", "fa3"):
        return problem.backend
    return "fa2" if any(unmet(problem, sm)) else "fa3"


def _module(generator: Generator, problem: Problem, backend: str = "") -> Module:
    return Module(
        generator,
        backend,
        (problem.q_dtype, problem.kv_dtype, problem.o_dtype),
        (problem.head_dim, problem.v_head_dim),
        problem.pos_encoding,
        problem.window_left >= 0,
        problem.softcap > 0,
    )


def spec(module: Module) -> Any:
    """FlashInfer's own description of the module, ready to build."""
    from flashinfer.jit.attention import modules as generators
    from flashinfer.jit.attention.variants import attention_sink_decl
    from flashinfer.jit.quantization import gen_quantization_module
    from flashinfer.jit.utils import filename_safe_dtype_map
    from flashinfer.utils import PosEncodingMode

    variant = *module.head_dims, PosEncodingMode[module.pos_encoding].value, module.window, module.softcap
    match module.generator, module.backend:
        case "quantization", _:
            return gen_quantization_module()
        case "batch_decode", _:
            return generators.gen_batch_decode_module(*module.dtypes, torch.int32, *variant)
        case "single_decode", _:
            return generators.gen_single_decode_module(*module.dtypes, *variant)
        case "single_prefill", backend:
            return generators.gen_single_prefill_module(backend, *module.dtypes, *variant, False)
        case "attention_sink", backend:
            # The wrapper makes its arguments up inside, and gives them another name than FlashInfer's own generator.
            q_dtype = filename_safe_dtype_map[module.dtypes[0]]
            name = f"batch_prefill_attention_sink_{q_dtype}_swa_{module.window}_{backend}"
            return generators.gen_customize_batch_prefill_module(
                backend,
                name,
                *module.dtypes,
                torch.int32,
                *module.head_dims,
                ["sink"],
                ["float"],
                ["sm_scale"],
                ["double"],
                "AttentionSink",
                attention_sink_decl[backend],
                use_sliding_window=module.window,
                pos_encoding_mode=PosEncodingMode[module.pos_encoding].value,
                paged_kv_stride_mode="independent" if backend == "fa2" else "runtime",
            )
        case "batch_prefill", "fa2":
            # What the wrappers load for K and V of like strides; the public generator's is another module.
            return generators._gen_batch_prefill_primary_module("fa2", *module.dtypes, torch.int32, *variant, False)
        case "batch_prefill", backend:
            return generators.gen_batch_prefill_module(backend, *module.dtypes, torch.int32, *variant, False)


def build(specs: Sequence[Any]) -> None:
    """Build the modules side by side, so that FlashInfer finds nothing left to build when a plan asks for one of them.

    Ninja keeps its logs where it runs, and compiles what they do not list. FlashInfer builds many modules from the
    folder of all, but a planned one from that module's own: without a copy of the logs it would compile that again.
    """
    from flashinfer.jit import build_jit_specs
    from flashinfer.jit.env import FLASHINFER_JIT_DIR

    build_jit_specs(specs)
    for built in specs:
        if not built.is_aot:  # those of an installed flashinfer-jit-cache are loaded from there
            for log in (".ninja_log", ".ninja_deps"):
                shutil.copy(FLASHINFER_JIT_DIR / log, built.build_dir)


def main() -> None:
    parser = argparse.ArgumentParser(prog="kaudit_probes.engines.flashinfer_jit")
    parser.add_argument("matrix")
    parser.add_argument("--only")
    parser.add_argument("--engine", action="append", choices=BACKENDS, help="by default all that run on this GPU")
    arguments = parser.parse_args()
    major, minor = torch.cuda.get_device_capability()
    sm = 10 * major + minor
    refusals = {name: why for name, backend in BACKENDS.items() if (why := refused(backend, sm))}
    for name in arguments.engine or ():
        if name in refusals:
            parser.error(f"--engine {name}: {refusals[name]}")
    backends = [BACKENDS[name] for name in arguments.engine or BACKENDS if name not in refusals]
    cells = expand(load(arguments.matrix)).only(arguments.only).cells
    specs = []
    for module in modules(cells, sm, backends):
        try:
            with saying_no():
                specs.append(spec(module))
                print(specs[-1].name)
        except Declined as declined:  # the sweep will hear it, too
            print(f"{module}: {declined}")
    build(specs)


if __name__ == "__main__":
    main()
