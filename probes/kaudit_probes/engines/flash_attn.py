"""The flash-attn libraries behind the Engine protocol: FlashAttention 2, 3 and 4, each a library of its own.

None of them chooses between families or says why: an argument that a build does not take raises, and that is all. What
a table of theirs shows is which calls are taken, and the kernels, splits and combines behind them.
"""

import re
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Refused, Rejection, Skipped
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines import Heard, Path, Span, importing
from kaudit_probes.engines.batches import DTYPES, SOFTCAP, Pages, normal, offsets
from kaudit_probes.engines.declined import FLASH_ATTENTION, Declined, declining

# The limits of the fourth are Python asserts, as are its checks of what only a caller's mistake can break: shapes that
# do not fit each other, a tensor on another device. Those have other words, or none.
_ASSERTED = re.compile(
    r"\A[^\n]*(not (yet )?support|only support|Unsupported|divisible|less than or equal|inputs must be float)[^\n]*"
)


FLASH_ATTENTION_2 = r"\bflash::flash_fwd_(splitkv_)?kernel"
"""flash-attn's own kernels: the same ones in torch are pytorch_flash::, and prove what torch did."""


class FlashAttn2Engine:
    name = "flash-attn-2"
    refusals: tuple[type[Exception], ...] = (Declined, NotImplementedError)
    environment: tuple[str, ...] = ()

    _module = "flash_attn"
    _package = "flash-attn"
    _path = Path("flash_attn:fa2", (FLASH_ATTENTION_2,))
    _page_table = "block_table"
    _features = frozenset({"softcap"})
    _any_side: int | None = -1
    """How a window that is open on one side is written."""
    _own_v_dim = False
    """Whether v may have another head dim than q and k."""

    def __init__(self, device: str) -> None:
        self.require()
        self._library = import_module(self._module)
        if device != "cuda":
            raise UserError(f"--engine {self.name}: {self._package} needs an NVIDIA GPU; run it where torch sees one")
        self._device = device

    @classmethod
    def require(cls) -> None:
        """Of the Requiring protocol."""
        with importing(cls.name):
            import_module(cls._module)

    def revision(self) -> str:
        return f"{version(self._package)}-torch{torch.__version__}"

    def switches(self) -> Mapping[str, str]:
        return {}

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {"attention": (self._path,)}

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        why = self._inexpressible(cell)
        return Skipped(why) if why else None

    def prepare(self, cell: Cell) -> "_Call":
        return _Call(self._call(cell))

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:  # noqa: ARG002 - it says nothing
        return {}

    def _inexpressible(self, cell: Cell) -> str | None:
        missing = set(cell.features) - self._features
        if missing:
            return f"{self._package} has no argument for {' and '.join(sorted(missing))}"
        if cell.mask.kind in ("custom", "tree"):
            return f"{self._package} takes no mask tensor"
        if cell.kv_dtype != cell.dtype:
            return f"{self._package} takes k and v of q's dtype, not {cell.kv_dtype}"
        if cell.rope.style != "none":
            return "attention takes q and k after RoPE: write rope: none"
        if cell.heads.v_dim != cell.heads.dim and not self._own_v_dim:
            return f"{self._package} takes one head dim for q, k and v"
        if cell.layout.kind != "ragged" and len(set(q_lens(cell))) > 1:
            return f"{self._package} takes one q_len for a batch over a cache; unlike ones are ragged"
        return None

    def _call(self, cell: Cell) -> "partial[Any]":
        heads, dtype, lens = cell.heads, DTYPES[cell.dtype], kv_lens(cell)
        mask: dict[str, Any] = {"causal": cell.mask.kind in ("causal", "window")}
        mask["window_size"] = (cell.mask.window - 1, 0) if cell.mask.window else (self._any_side, self._any_side)
        if "softcap" in cell.features:
            mask["softcap"] = SOFTCAP
        if "sinks" in cell.features:
            mask["learnable_sink"] = normal(self._device, torch.bfloat16, heads.q)

        def tensor(count: int, dim: int, *rows: int) -> torch.Tensor:
            return normal(self._device, dtype, *rows, count, dim)

        if cell.layout.kind == "ragged":
            news = q_lens(cell)
            return partial(
                self._library.flash_attn_varlen_func,
                tensor(heads.q, heads.dim, sum(news)),
                tensor(heads.kv, heads.dim, sum(lens)),
                tensor(heads.kv, heads.v_dim, sum(lens)),
                cu_seqlens_q=offsets(news).to(self._device),
                cu_seqlens_k=offsets(lens).to(self._device),
                max_seqlen_q=max(news),
                max_seqlen_k=max(lens),
                **mask,
            )
        q = tensor(heads.q, heads.dim, cell.shape.batch, q_lens(cell)[0])
        if cell.layout.kind == "contiguous" and cell.phase == "prefill":
            rows = cell.shape.batch, cell.shape.kv_len
            k, v = tensor(heads.kv, heads.dim, *rows), tensor(heads.kv, heads.v_dim, *rows)
            return partial(self._library.flash_attn_func, q, k, v, **mask)
        rows = cell.shape.batch, cell.shape.kv_len
        if cell.layout.kind == "paged":
            pages = Pages.of(lens, cell.layout.page)
            mask[self._page_table] = pages.table().to(self._device)
            rows = len(pages.indices), cell.layout.page
        k, v = tensor(heads.kv, heads.dim, *rows), tensor(heads.kv, heads.v_dim, *rows)
        return self._cached(q, k, v, torch.tensor(lens, dtype=torch.int32, device=self._device), mask)

    def _cached(self, q: Any, k: Any, v: Any, lens: torch.Tensor, options: dict[str, Any]) -> "partial[Any]":
        return partial(self._library.flash_attn_with_kvcache, q, k, v, cache_seqlens=lens, **options)


class FlashAttn3Engine(FlashAttn2Engine):
    name = "flash-attn-3"
    _module = "flash_attn_interface"
    _package = "flash_attn_3"
    _path = Path("flash_attn:fa3", (r"\bflash::FlashAttnFwdSm(90|80)",))
    _page_table = "page_table"
    _own_v_dim = True


class FlashAttn4Engine(FlashAttn2Engine):
    name = "flash-attn-4"
    environment = ("FLASH_ATTENTION_ARCH", "FA_LOG_LEVEL")
    _module = "flash_attn.cute"
    _package = "flash-attn-4"
    _path = Path("flash_attn:fa4", (r"FlashAttention\w*Forward",))
    _page_table = "page_table"
    _features = frozenset({"softcap", "sinks"})
    _any_side = None
    _own_v_dim = True

    def _cached(self, q: Any, k: Any, v: Any, lens: torch.Tensor, options: dict[str, Any]) -> "partial[Any]":
        return partial(self._library.flash_attn_varlen_func, q, k, v, seqused_k=lens, **options)


class _Call:
    def __init__(self, call: "partial[Any]") -> None:
        self._call = call

    def run(self, span: Span) -> None:
        with span("attention"), declining(FLASH_ATTENTION), declining(_ASSERTED, (AssertionError,)):
            self._call()

    def claimed(self) -> Mapping[str, str]:
        return {}

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        return {}
