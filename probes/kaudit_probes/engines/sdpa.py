"""torch's scaled_dot_product_attention, as a caller with contiguous K and V uses it."""

import warnings
from collections.abc import Mapping

import torch

from kaudit.cell import Cell
from kaudit.observation import Refused, Rejection, Skipped
from kaudit_probes.engines import Heard, Path, Span
from kaudit_probes.engines.sdpa_call import OPS, Arguments, attention_of, calls, tokens_of
from kaudit_probes.engines.sdpa_reasons import ENABLED, PATHS, rejections, turned_down
from kaudit_probes.engines.torch_attention import UNFUSED, revision, untold
from kaudit_probes.numerics import Computed
from kaudit_probes.poison import run_over_poison

# What proves each back end. Math shows no name of its own, but roles: products and a softmax that anyone may launch.
_ON_CUDA = {
    "sdpa:cudnn": (r"cudnn_\w*sdpa",),
    # FlashAttention 2 is built in; activate_flash_attention_impl puts 3 or 4 in its place, and the choice stays FLASH.
    "sdpa:flash": (r"flash_fwd_(splitkv_)?kernel|FlashAttnFwdSm|FlashAttentionForward",),
    "sdpa:efficient": (r"fmha_cutlassF|PyTorchMemEffAttention",),
    "sdpa:math": (),
}
_ON_CPU = {
    "sdpa:flash": (r"^aten::_scaled_dot_product_flash_attention_for_cpu$",),
    "sdpa:math": (),
}

_SAID = " said: "


class SdpaEngine:
    name = "sdpa"
    refusals = ()
    environment = ("TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED",)

    def __init__(self, device: str) -> None:
        self._device = device
        # torch puts cuDNN first, on the GPUs where it prefers it, when it is first asked: ask before reading the order.
        q = torch.zeros(1, 1, 8, 64, device=device, dtype=torch.bfloat16)
        torch._fused_sdp_choice(q, q, q)
        shows = _ON_CUDA if device == "cuda" else _ON_CPU
        built = {path for path in shows if device == "cpu" or _built(path)}
        order = dict.fromkeys(torch._C._get_sdp_priority_order())
        self._order = [backend for backend in order if PATHS.get(backend) in built]
        self._paths = tuple(_path(PATHS[backend], shows[PATHS[backend]]) for backend in self._order)

    def revision(self) -> str:
        return revision()

    def switches(self) -> Mapping[str, str]:
        upcast = not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
        return {
            "sdpa.order": " ".join(path.name for path in self._paths),
            "sdpa.enabled": " ".join(path.name for path in self._paths if ENABLED[path.name]()),
            "sdpa.flash_impl": _flash_impl(),
            "sdpa.math_upcasts": str(upcast),
            "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return dict.fromkeys(OPS, self._paths)

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        function = "scaled_dot_product_attention"
        if cell.layout.kind != "contiguous":
            return Skipped(f"{function} takes contiguous k and v, not {cell.layout}")
        if cell.phase == "mixed":
            return Skipped(f"{function} takes one q_len for the whole batch, mixed has two")
        why = untold(cell, function, {"speculative_tree", "transposed", "sliced", "broadcast"})
        return Skipped(why) if why else None

    def prepare(self, cell: Cell) -> "_Call":
        return _Call(cell, calls(cell, self._device), self._order)

    def announced(self, heard: Heard) -> dict[str, tuple[Rejection, ...]]:
        said: dict[str, list[str]] = {}
        for warning in heard.warnings:
            op, tagged, text = warning.partition(_SAID)
            if tagged and op in OPS:
                said.setdefault(op, []).append(text)
        return {op: rejections(texts, "announced") for op, texts in said.items()}


class _Call:
    def __init__(self, cell: Cell, made: dict[str, Arguments], order: list[int]) -> None:
        self._cell = cell
        self._calls = made
        self._order = order

    def run(self, span: Span) -> None:
        for op, arguments in self._calls.items():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with span(op):
                    arguments.run()
            for warning in caught:  # what one of the equal calls says is no word on the others
                warnings.warn(f"{op}{_SAID}{warning.message}", stacklevel=1)

    def claimed(self) -> Mapping[str, str]:
        return {op: PATHS[arguments.choice()] for op, arguments in self._calls.items()}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {op: turned_down(arguments, self._order) for op, arguments in self._calls.items()}

    def numbers(self) -> list[Computed]:
        """The equal calls are held against what the cell's own should come to."""
        asked = attention_of(self._cell, self._calls["attention"])
        return [
            Computed(op, tokens_of(self._cell, run_over_poison(arguments.run)), asked)
            for op, arguments in self._calls.items()
        ]


def _path(name: str, shows: tuple[str, ...]) -> Path:
    return Path(name, shows) if shows else Path(name, roles=UNFUSED)


def _built(path: str) -> bool:
    """Whether this build of torch has the back end for CUDA at all: Windows wheels came without flash."""
    match path:
        case "sdpa:flash":
            return torch.backends.cuda.is_flash_attention_available()
        case "sdpa:cudnn":
            return torch.backends.cudnn.version() is not None  # type: ignore[no-untyped-call]
    return True


def _flash_impl() -> str:
    """Which FlashAttention serves as flash: the one in torch, unless another was activated (torch 2.10 or later)."""
    current = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)
    return current() or "built in"
