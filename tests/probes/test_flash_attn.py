"""The flash-attn adapters: what is skipped, and the calls that a library would be given (by a stand-in: none installs
without a GPU's compiler)."""

import re
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Skipped
from kaudit_probes.engines import ENGINES, flash_attn
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.flash_attn import FlashAttn2Engine, FlashAttn3Engine, FlashAttn4Engine, _Call
from kaudit_probes.rows import path_shown

KINDS = [FlashAttn2Engine, FlashAttn3Engine, FlashAttn4Engine]
PREFILL = "prefill/bf16/kv-bf16/h8x2x64/contiguous/causal/none/plain/b3q32k32"
DECODE = "decode/bf16/kv-bf16/h8x2x64/contiguous/causal/none/plain/b3q1k32skew"


class Library:
    """Keeps what it is called with."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: SimpleNamespace(name=name, args=args, options=options)


def engine(kind: type[FlashAttn2Engine]) -> FlashAttn2Engine:
    made = object.__new__(kind)
    made._library, made._device = Library(), "cpu"  # type: ignore[assignment]
    return made


def called(kind: type[FlashAttn2Engine], cell: str) -> Any:
    assert engine(kind).supports(Cell.parse(cell)) is None
    return engine(kind)._call(Cell.parse(cell))()


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_library_says_how_to_get_it(kind: type[FlashAttn2Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind._module.split(".")[0], None)
    with pytest.raises(
        UserError, match=f"{kind.name}: (not installed|does not import).*{re.escape(ENGINES[kind.name].get)}"
    ):
        kind("cuda")
    monkeypatch.setattr(flash_attn, "import_module", ModuleType)
    with pytest.raises(UserError, match="needs an NVIDIA GPU"):
        kind("cpu")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (PREFILL.replace("causal", "custom"), "no mask tensor"),
        (PREFILL.replace("kv-bf16", "kv-fp8_e4m3"), "q's dtype"),
        (PREFILL.replace("/none/", "/neox/"), "after RoPE"),
        (PREFILL.replace("plain", "cuda_graph"), "no argument for cuda_graph"),
        (f"{PREFILL}skew", "one q_len"),
    ],
)
def test_what_cannot_be_said_is_skipped(kind: type[FlashAttn2Engine], cell: str, why: str) -> None:
    found = engine(kind).supports(Cell.parse(cell))
    assert isinstance(found, Skipped)
    assert why in found.reason


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass",
            FlashAttn2Engine,
        ),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false", FlashAttn2Engine),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::C", FlashAttn3Engine),
        # torch's own, as its table of an H200 has it.
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass", None),
        ("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false", None),
    ],
)
def test_a_kernel_of_torch_proves_no_library(kernel: str, kind: type[FlashAttn2Engine] | None) -> None:
    paths = (FlashAttn2Engine._path, FlashAttn3Engine._path, FlashAttn4Engine._path)
    assert path_shown([kernel], paths) == (kind._path.name if kind else None)


def test_the_second_has_one_head_dim() -> None:
    wide = PREFILL.replace("x64/", "x64x32/")
    assert engine(FlashAttn2Engine).supports(Cell.parse(wide)) == Skipped(
        "flash-attn takes one head dim for q, k and v"
    )
    assert (
        called(FlashAttn3Engine, wide).args[2].shape == called(FlashAttn4Engine, wide).args[2].shape == (3, 32, 2, 32)
    )


def test_only_the_fourth_has_sinks() -> None:
    sinks = PREFILL.replace("plain", "sinks")
    assert isinstance(engine(FlashAttn2Engine).supports(Cell.parse(sinks)), Skipped)
    assert isinstance(engine(FlashAttn3Engine).supports(Cell.parse(sinks)), Skipped)
    assert called(FlashAttn4Engine, sinks).options["learnable_sink"].shape == (8,)


@pytest.mark.parametrize("kind", KINDS)
def test_dense_calls(kind: type[FlashAttn2Engine]) -> None:
    call = called(kind, PREFILL.replace("causal", "window8").replace("plain", "softcap"))
    assert call.name == "flash_attn_func"
    assert [tuple(tensor.shape) for tensor in call.args] == [(3, 32, 8, 64), (3, 32, 2, 64), (3, 32, 2, 64)]
    assert call.options == {"causal": True, "window_size": (7, 0), "softcap": 30.0}
    open_side = None if kind is FlashAttn4Engine else -1
    assert called(kind, PREFILL).options["window_size"] == (open_side, open_side)


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_calls(kind: type[FlashAttn2Engine]) -> None:
    call = called(kind, f"{PREFILL}skew".replace("contiguous", "ragged"))
    assert call.name == "flash_attn_varlen_func"
    assert call.options["cu_seqlens_q"].tolist() == call.options["cu_seqlens_k"].tolist() == [0, 32, 53, 63]
    assert (call.options["max_seqlen_q"], call.args[1].shape) == (32, (63, 2, 64))


@pytest.mark.parametrize(
    ("kind", "name", "lens", "pages"),
    [
        (FlashAttn2Engine, "flash_attn_with_kvcache", "cache_seqlens", "block_table"),
        (FlashAttn3Engine, "flash_attn_with_kvcache", "cache_seqlens", "page_table"),
        (FlashAttn4Engine, "flash_attn_varlen_func", "seqused_k", "page_table"),
    ],
)
def test_calls_over_a_cache(kind: type[FlashAttn2Engine], name: str, lens: str, pages: str) -> None:
    call = called(kind, DECODE)
    assert (call.name, call.options[lens].tolist()) == (name, [32, 21, 10])
    assert [tuple(tensor.shape) for tensor in call.args] == [(3, 1, 8, 64), (3, 32, 2, 64), (3, 32, 2, 64)]
    paged = called(kind, DECODE.replace("contiguous", "paged16"))
    assert paged.args[1].shape == (5, 16, 2, 64)
    assert paged.options[pages].shape == (3, 2)
    assert paged.options[pages].dtype == torch.int32


def test_a_check_of_the_library_is_a_refusal_and_a_broken_context_is_not() -> None:
    def raising(text: str) -> Any:
        def call() -> None:
            raise RuntimeError(text)

        return _Call(call)  # type: ignore[arg-type]

    with pytest.raises(Declined, match=r"^Paged KV cache block size must be divisible by 256$"):
        raising("Paged KV cache block size must be divisible by 256\nException raised from mha_fwd").run(span)
    for failure in (
        "CUDA error: operation not supported",
        "block_table must be on CUDA",
        "query and key must have the same dtype\nframe #3: FlashAttention",
    ):
        with pytest.raises(RuntimeError, match=f"^{failure}$"):
            raising(failure).run(span)


@pytest.mark.parametrize(
    ("said", "refuses"),
    [
        ("(head_dim, head_dim_v)=(512, 512) is not supported on SM90. head_dim must be between 8 and 256", True),
        ("FP8 is only supported on SM100 (compute capability 10.x) for FA4 CuTe.", True),
        ("num_head must be divisible by num_head_kv", True),
        ("inputs must be float16 or bfloat16", True),
        ("Unsupported compute capability. Supported: 9.x, 10.x, 11.x", True),
        ("", False),  # assert k.shape == (...): a caller's mistake
        ("inputs must be on CUDA device", False),
        ("page_table must be int32", False),
        ("inputs must have the same dtype", False),
    ],
)
def test_an_assertion_refuses_by_its_words_and_without_any_it_is_a_crash(said: str, refuses: bool) -> None:
    def call() -> None:
        raise AssertionError(said)

    with pytest.raises(Declined if refuses else AssertionError) as caught:
        _Call(call).run(span)  # type: ignore[arg-type]
    assert str(caught.value) == said
    assert isinstance(caught.value, engine(FlashAttn4Engine).refusals) == refuses


def span(_: str) -> Any:
    return nullcontext()
