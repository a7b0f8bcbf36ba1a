"""A decoder layer of Hugging Face transformers behind the Engine protocol: which kernel serves its attention.

The model is run as a whole, so that it makes its own mask, cache and layout; only its attention function, by whatever
name it is chosen, stands inside the op. Cells with skewed lengths are left-padded batches, as a tokenizer makes them.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Refused, Rejection, Said, Skipped, Unmet
from kaudit.requests import kv_lens
from kaudit_probes.engines import ENGINES, Heard, Path, Span, importing, mirrored
from kaudit_probes.engines.batches import DTYPES, normal
from kaudit_probes.engines.declined import FLASH_ATTENTION, Declined, declining
from kaudit_probes.engines.flash_attn import FLASH_ATTENTION_2
from kaudit_probes.engines.sdpa import SdpaEngine
from kaudit_probes.engines.sdpa_call import Arguments
from kaudit_probes.engines.sdpa_reasons import PATHS, turned_down
from kaudit_probes.engines.torch_attention import UNFUSED, announced_of_fused
from kaudit_probes.engines.transformers_attention import in_place_of, listed
from kaudit_probes.engines.transformers_configs import MODELS, beyond_any, config_of, unsupported
from kaudit_probes.engines.transformers_given import Given, given
from kaudit_probes.engines.transformers_layers import Layer

# The math back end of SDPA and the eager function of a model launch alike: products and a softmax.
_UNFUSED = "unfused"

# SDPA has no softcap to be given. Where a model that has one is served by it all the same, what runs is another
# attention than the cell's, and fused kernels look alike with and without: so the row says of which op it is.
UNCAPPED = "attention_without_softcap"

# How transformers says no to a model's attention, by exceptions that any mistake has, too.
_NO = re.compile(r"[^\n]*(not support|cannot be used)[^\n]*")

_FLASH = ENGINES["flash-attn-2"]
"""What transformers runs where flash_attention_2 is asked for."""

# How it says that it gives another attention than it would have: "using `…` instead!", "Automatically falling back to".
_FALLS_BACK = re.compile(r"(?=.*(attn|attention)).*(fall(ing)? back|instead)", re.IGNORECASE | re.DOTALL)


class TransformersEngine:
    name = "transformers"
    refusals = (Declined,)
    environment = ("TRANSFORMERS_SDPA_FORCE_GQA", "USE_HUB_KERNELS")
    _asked: str | None = None
    """attn_implementation; None leaves the choice to transformers."""
    _given: Given | None = None
    """The user's model; None makes one for each cell."""

    def __init__(self, device: str) -> None:
        self.require()
        import transformers

        # Its loggers keep to themselves; what they say has to reach whoever listens.
        transformers.logging.enable_propagation()
        self._version = str(transformers.__version__)
        self._device = device
        self._sdpa = SdpaEngine(device)
        self._given = given(device)

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol."""
        with importing(cls.name):
            import transformers  # noqa: F401

    def revision(self) -> str:
        return f"{self._version}-torch{torch.__version__}"

    def switches(self) -> Mapping[str, str]:
        models = {"transformers.model": MODELS} if self._given is None else self._given.switches()
        asked = {"transformers.attn_implementation": self._asked or "its own choice"}
        return {**self._sdpa.switches(), **asked, **models}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        paths = self._sdpa.paths()["attention"]
        served = *(path for path in paths if path.shows), Path(_UNFUSED, roles=UNFUSED)
        return {"attention": served, UNCAPPED: served}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        why = beyond_any(cell) or (unsupported(cell) if self._given is None else self._given.unsupported(cell))
        return Skipped(why) if why else None

    def prepare(self, cell: Cell) -> "_Call":
        from transformers import AutoModel
        from transformers.utils import logging

        # What it says once in a process is to be heard in each cell that has cause for it.
        logging.warning_once.cache_clear()
        layer = None if self._given is None else self._given.layer_of(cell)
        config = config_of(cell) if layer is None else deepcopy(layer.config)
        # Anew for each cell, for it is in building a model that transformers tells what it gives instead.
        with torch.device(self._device), declining(_NO, (ValueError, ImportError)):
            model = AutoModel.from_config(config, dtype=DTYPES[cell.dtype], attn_implementation=self._asked).eval()
        return _Call(cell, model, self._device, [path.name for path in self.paths()["attention"]], layer)

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        """What transformers logs of falling back is about all that it would rather have given: each fused path."""
        said = _falling_back(heard)
        return announced_of_fused(self.paths(), said) if said else {}


class TransformersEagerEngine(TransformersEngine):
    """The models' own eager functions, asked for: what SDPA is measured against."""

    name = "transformers-eager"
    _asked = "eager"

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (Path(_UNFUSED, roles=UNFUSED),)}


class TransformersFlashEngine(TransformersEngine):
    """FlashAttention 2, asked for. A batch with padded rows is packed and unpacked around it."""

    name = "transformers-flash"
    _asked = "flash_attention_2"

    def __init__(self, device: str) -> None:
        self.require()
        from transformers import __version__, utils

        if device != "cuda":
            raise UserError(f"--engine {self.name}: flash-attn needs an NVIDIA GPU; run it where torch sees one")
        if not utils.is_flash_attn_2_available():
            # transformers would ask the hub for a kernel instead: another library, of no fixed version.
            what = f"transformers {__version__} does not take flash-attn {_FLASH.version()}"
            raise UserError(f"--engine {self.name}: {what}; install a newer one where --python points")
        super().__init__(device)

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol."""
        super().require()
        if not _FLASH.version():  # by its distribution: flash-attn-4 has a package of the same name
            get = f"{_FLASH.get}, where --python points"
            raise UserError(f"--engine {cls.name}: flash-attn 2 is not installed; {get}")
        with importing(cls.name):
            import_module("flash_attn")

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        """What was asked for, and behind it what transformers would give instead."""
        flash = Path(str(self._asked), (FLASH_ATTENTION_2,))
        return {op: (flash, *others) for op, others in super().paths().items()}

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        """Whoever asks for one implementation is told what became of that one."""
        said = _falling_back(heard)
        return {op: (Rejection(str(self._asked), "announced", said),) for op in self.paths()} if said else {}


def _falling_back(heard: Heard) -> tuple[Said, ...]:
    words = (record.getMessage() for record in heard.records if record.name.startswith("transformers"))
    return tuple(Said(text) for text in dict.fromkeys(words) if _FALLS_BACK.search(text))


class _Call:
    def __init__(self, cell: Cell, model: Any, device: str, paths: list[str], layer: Layer | None) -> None:
        self._cell, self._model, self._paths = cell, model, paths
        shape, heads = cell.shape, cell.heads
        self._tokens = torch.ones(shape.batch, shape.q_len, dtype=torch.long, device=device)
        self._padding = padding(cell).to(device)
        self._chunk, cached = (0, ((heads.kv, heads.dim),) * 2) if layer is None else (layer.chunk, layer.cached)
        past = shape.kv_len - shape.q_len
        self._past = [normal(device, DTYPES[cell.dtype], shape.batch, of, past, dim) for of, dim in cached]
        self._op = "attention"
        with _Overhearing() as overheard:
            self.run(lambda _: nullcontext())
        self._arguments = overheard.arguments
        if "softcap" in cell.features and overheard.arguments is not None:
            self._op = UNCAPPED

    def run(self, span: Span) -> None:
        with _inside(lambda: span(self._op), self._model.config._attn_implementation):
            self._forward()

    def claimed(self) -> Mapping[str, str]:
        """transformers claims `sdpa`, `eager` or another implementation; of SDPA's back ends, torch says which."""
        match str(self._model.config._attn_implementation):
            case "eager":
                return {self._op: _UNFUSED}
            case "sdpa" if self._arguments is not None:
                chosen = PATHS[self._arguments.choice()]
                return {self._op: _UNFUSED if chosen == "sdpa:math" else chosen}
            case implementation:
                return {self._op: implementation}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        fused = [path for path in self._paths if path.startswith("sdpa:")]
        if self._model.config._attn_implementation == "eager":
            name = type(self._model).__name__
            needs = mirrored("model", f"{name} in eager", "a class with _supports_sdpa")
            return {self._op: tuple(Rejection(path, "asked", (needs,)) for path in fused)}
        if self._arguments is None:
            return {}
        ordered = dict.fromkeys(torch._C._get_sdp_priority_order())
        order = [backend for backend in ordered if PATHS.get(backend) in (*fused, "sdpa:math")]
        made = tuple(mask_made(self._cell, self._chunk)) if self._arguments.mask is not None else ()
        return {
            self._op: tuple(
                # Flash takes no mask at all, so what made transformers build one is a reason of this path.
                Rejection(why.path, why.source, (*why.reasons, *made)) if why.path == "sdpa:flash" else why
                for why in turned_down(self._arguments, order)
            )
        }

    def _forward(self) -> None:
        from transformers import DynamicCache

        # A new cache for every run: running the model appends to it.
        cache = DynamicCache(config=self._model.config)
        k, v = self._past
        if k.shape[2]:
            cache.update(k, v, 0)
        with torch.no_grad():
            self._model(self._tokens, attention_mask=self._padding, past_key_values=cache, use_cache=True)


def padding(cell: Cell) -> Tensor:
    """[batch, kv_len] int64: 0 where a shorter request is padded, on the left, else 1."""
    kv_len = cell.shape.kv_len
    return torch.tensor([[0] * (kv_len - length) + [1] * length for length in kv_lens(cell)])


def mask_made(cell: Cell, chunk: int = 0) -> Iterator[Unmet]:
    """Why transformers passes a mask instead of is_causal: masking_utils._ignore_causal_mask_sdpa of 5.17, mirrored."""
    q_len, kv_len, batch = cell.shape.q_len, cell.shape.kv_len, cell.shape.batch
    padded = sum(length < kv_len for length in kv_lens(cell))
    if padded:
        yield mirrored("padding", f"{padded} of {batch} rows", "no padded row, for one makes a mask for all")
    if q_len not in (1, kv_len):
        yield mirrored("q_len", f"{q_len} of {kv_len}", "1, or all of kv_len")
    if cell.mask.window and kv_len >= cell.mask.window:
        yield mirrored("window", str(cell.mask.window), f"a window wider than the {kv_len} keys")
    if chunk and kv_len >= chunk:
        yield mirrored("chunk", str(chunk), f"chunks longer than the {kv_len} keys")


class _Overhearing(TorchFunctionMode):
    """Keeps what reaches torch's SDPA: the mask that was made or not, the heads that were repeated or not."""

    arguments: Arguments | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            q, k, v = args
            gqa = kwargs.get("enable_gqa", False)
            self.arguments = Arguments(q, k, v, kwargs["attn_mask"], kwargs["is_causal"], gqa)
        return func(*args, **kwargs)


@contextmanager
def _inside(span: Callable[[], AbstractContextManager[object]], implementation: str) -> Iterator[None]:
    """The attention function that transformers chooses by the name `implementation`, inside the op's span."""
    real = listed(implementation)

    def attention(module: Any, *args: Any, **kwargs: Any) -> Any:
        # The eager function of a model stands in the module of its class, and in no table.
        serve = real or sys.modules[type(module).__module__].eager_attention_forward
        with span(), declining(_NO, (ValueError,)), declining(FLASH_ATTENTION):
            return serve(module, *args, **kwargs)

    with in_place_of(implementation, attention):
        yield
