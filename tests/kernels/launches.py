"""What a kernel would launch for a problem, and what would be compiled for it: recorded on a CPU, nothing runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kaudit_kernels import cuda
from kaudit_kernels.cache import LARGEST, TORCH_DTYPE
from kaudit_kernels.dispatch import Kernel
from kaudit_kernels.engine import ARGUMENTS
from kaudit_kernels.fp8 import FP8, Fp8Weight
from kaudit_kernels.masks import Packed
from kaudit_kernels.problem import Problem

CUDA = [import_module(f"{cuda.__name__}.{each.name}") for each in iter_modules(cuda.__path__) if each.name != "module"]
"""Those that launch what NVRTC compiles, by module.launch."""

Compiled = tuple[str, ...]
"""A device function, and all that another is compiled for: constants, types, absent arguments, numbers that Triton
takes for constants."""


@contextmanager
def catching(take: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> Iterator[None]:
    """In the place of every launch of Triton's, `take` of the kernel, its arguments, and its constants and options."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    def launched(kernel: Any, *given: Any, **options: Any) -> None:
        take(kernel, given, {name: value for name, value in options.items() if name not in ("grid", "warmup")})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpretedFunction, "run", launched)
        patch.setattr(JITFunction, "run", launched)  # Gluon's, which has no interpreter
        for module in CUDA:
            patch.setattr(module, "launch", lambda *_: None)
        patch.setattr(torch, "_scaled_mm", lambda *_, **__: None)
        yield


@contextmanager
def recording() -> Iterator[list[Compiled]]:
    """In the place of every launch, Triton's and NVRTC's, a line of the list."""
    launched: list[Compiled] = []

    with catching(lambda *each: launched.append(_compiled(*each))), pytest.MonkeyPatch.context() as patch:
        for module in CUDA:
            patch.setattr(module, "launch", lambda _source, instance, *_: launched.append((instance,)))
        yield launched


def launch(op: str, kernel: Kernel, problem: Problem) -> None:
    """With tensors that have no memory."""
    kernel.launch(*ARGUMENTS[op](_inputs(problem), _outputs(problem)))


def _compiled(kernel: Any, given: tuple[Any, ...], options: dict[str, Any]) -> Compiled:
    general = getattr(kernel, "do_not_specialize", None) or getattr(kernel, "kwargs", {}).get("do_not_specialize") or ()
    seen = [f"{name}={_kind(value, name in general)}" for name, value in zip(kernel.arg_names, given, strict=False)]
    return (kernel.__name__, *seen, *(f"{name}={value}" for name, value in options.items()))


def _kind(value: Any, general: bool) -> str:
    """Triton compiles anew for an int that is 1 or a multiple of 16, unless told not to, and for an address that is."""
    match value:
        case Tensor():
            return f"{value.dtype} {value.storage_offset() * value.element_size() % 16 == 0}"
        case int():
            return "int" if general else f"int {value == 1} {value % 16 == 0}"
        case None:
            return "None"
        case _:
            return type(value).__name__


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def _inputs(problem: Problem) -> Any:
    """What the launch functions look at of Inputs."""
    stored, dtype = TORCH_DTYPE[problem.kv_dtype], TORCH_DTYPE[problem.dtype]
    scale = _empty(problem.kv_heads) if stored in LARGEST else None
    pages = -(-problem.kv_len // problem.page_size) if problem.page_size else 1
    packed = Packed(_empty(1, dtype=torch.uint8), _empty(problem.batch, dtype=torch.int64))

    def weight(rows: int, columns: int) -> Tensor | Fp8Weight:
        if problem.weight_dtype == "fp8_e4m3":
            return Fp8Weight(_empty(rows, columns, dtype=FP8), _empty(1, columns))
        return _empty(rows, columns, dtype=dtype)

    cache = SimpleNamespace(
        k=_empty(1, problem.kv_heads, problem.head_dim, dtype=stored),
        v=_empty(1, problem.kv_heads, problem.v_head_dim, dtype=stored),
        k_scale=scale,
        v_scale=scale,
        slots=_empty(problem.tokens, dtype=torch.int64),
        q_start=_empty(problem.batch + 1, dtype=torch.int32),
        kv_lens=_empty(problem.batch, dtype=torch.int32),
        kv_start=_empty(problem.batch, dtype=torch.int64),
        page_table=_empty(problem.batch, pages, dtype=torch.int32),
    )
    return SimpleNamespace(
        problem=problem,
        cache=cache,
        x=_empty(problem.tokens, problem.hidden, dtype=dtype),
        attention_norm=_empty(problem.hidden, dtype=dtype),
        mlp_norm=_empty(problem.hidden, dtype=dtype),
        qkv=weight(problem.hidden, problem.qkv_width),
        o=weight(problem.attention_width, problem.hidden),
        gate_up=weight(problem.hidden, problem.gate_up_width),
        down=weight(problem.intermediate, problem.hidden),
        cosines=_empty(problem.tokens, problem.head_dim // 2),
        sines=_empty(problem.tokens, problem.head_dim // 2),
        masks=SimpleNamespace(packed=lambda: packed),
        sinks=_empty(problem.q_heads) if "sinks" in problem.features else None,
        logits=_empty(problem.batch, problem.vocabulary),
        allowed=_empty(problem.batch, -(-problem.vocabulary // 32), dtype=torch.int32),
        draws=_empty(problem.batch),
    )


def _outputs(problem: Problem) -> dict[str, Tensor]:
    widths: dict[str, tuple[int, ...]] = {
        "rms_norm": (problem.hidden,),
        "qkv_proj": (problem.qkv_width,),
        "rope_kv_write": (problem.q_heads, problem.head_dim),
        "attention": (problem.q_heads, problem.v_head_dim),
        "o_proj": (problem.hidden,),
        "gate_up_proj": (problem.gate_up_width,),
        "silu_mul": (problem.intermediate,),
    }
    dtype = TORCH_DTYPE[problem.dtype]
    outputs = {op: _empty(problem.tokens, *width, dtype=dtype) for op, width in widths.items()}
    return outputs | {"add_rms_norm": _empty(2, problem.tokens, problem.hidden, dtype=dtype)}
