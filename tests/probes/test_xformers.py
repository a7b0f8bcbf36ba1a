"""xFormers' adapter: what is skipped, what a broken install says, and the orders that xFormers tries its ops in, by a
stand-in; where xFormers is installed, by its own."""

import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Skipped
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.torch_attention import SHORT_QUERY
from kaudit_probes.engines.xformers import XformersEngine
from kaudit_probes.engines.xformers_inputs import kv_rows
from kaudit_probes.engines.xformers_ops import name_of, orders, reasons
from kaudit_probes.rows import path_shown

PREFILL = "prefill/bf16/kv-bf16/h8x2x64/contiguous/causal/none/plain/b3q32k32"
DECODE = "decode/fp16/kv-fp16/h8x2x64/contiguous/none/none/plain/b2q1k512"
RAGGED = f"{SHORT_QUERY}_ragged"


@dataclass
class Inputs:
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_bias: Any = None


@dataclass
class Op:
    NAME: str
    lacks: tuple[str, ...] = ()

    def not_supported_reasons(self, _: Inputs) -> list[str]:
        return list(self.lacks)


class Stand:
    """xFormers 0.0.35, as far as its dispatch goes: its order, by the shapes that decide on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = {"fa3": "fa3F@0.0.0", "fa2": "fa2F@2.5.7-pt", "cutlass": "cutlassF-pt", "split": "triton_splitKF"}
        self.ops = {short: Op(name) for short, name in names.items()}
        self.lib = ModuleType("xformers._cpp_lib")
        self.module = SimpleNamespace(
            _get_use_fa3=lambda: True, _dispatch_fw_priority_list=self.order, _dispatch_fw=self.dispatch
        )
        packed = SimpleNamespace(from_seqlens=lambda *_, **__: "packed")
        common = {"Inputs": Inputs}
        fmha = {"dispatch": self.module, "ALL_FW_OPS": list(self.ops.values())}
        for name, content in {
            "xformers": {"__version__": "0.0.35"},
            "xformers.ops": {"fmha": SimpleNamespace(**fmha), "memory_efficient_attention_forward": self.attend},
            "xformers.ops.fmha": fmha,
            "xformers.ops.fmha.common": common,
            "xformers.ops.fmha.attn_bias": {"BlockDiagonalMask": packed},
            "xformers._cpp_lib": {},
        }.items():
            module = self.lib if name == self.lib.__name__ else ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("kaudit_probes.engines.xformers_inputs.normal", lambda _, dtype, *rows: blank(dtype, rows))

    def order(self, given: Inputs, needs_gradient: bool) -> list[Op]:
        assert not needs_gradient
        fa3, fa2, cutlass, split = self.ops.values()
        shared = given.key.ndim > 3 and given.key.stride(-2) == 0 and given.key.shape[-2] > 1
        if not shared or given.query.shape[1] > 32 or given.key.shape[1] < 256:
            return [fa3, fa2, cutlass]
        return [split, fa3, fa2, cutlass] if given.attn_bias == "packed" else [fa2, split, cutlass]

    def dispatch(self, given: Inputs, needs_gradient: bool) -> Op:
        return next(op for op in self.order(given, needs_gradient) if not op.lacks)

    def attend(self, *_: object) -> None:
        raise NotImplementedError("No operator found for `memory_efficient_attention_forward` with inputs:\n")


def blank(dtype: torch.dtype, rows: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(rows, dtype=dtype, device="meta")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def test_an_absent_xformers_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xformers", None)
    with pytest.raises(UserError, match=r"(not installed|does not import).*pip install xformers"):
        XformersEngine("cuda")


@pytest.mark.usefixtures("stand")
def test_without_a_gpu_there_is_nothing_to_audit() -> None:
    with pytest.raises(UserError, match="needs an NVIDIA GPU"):
        XformersEngine("cpu")


def test_a_build_for_another_torch_is_no_engine_that_refuses(stand: Stand) -> None:
    for op in stand.ops.values():
        op.lacks = ("xFormers wasn't build with CUDA support",)
    stand.ops["fa3"].lacks = ("operator wasn't built - see `python -m xformers.info` for more info",)
    with pytest.raises(UserError) as caught:
        XformersEngine("cuda")
    (line,) = str(caught.value).splitlines()
    assert f"no op of xformers 0.0.35 is built for torch {torch.__version__} (fa3F: operator wasn't built" in line
    assert "cutlassF: xFormers wasn't build with CUDA support" in line

    failure = OSError("Could not load this library: _C.so")
    failure.__cause__ = OSError("libcudart.so.12: cannot open shared object file\nand more")
    invalid = Exception("xFormers can't load C++/CUDA extensions.")
    invalid.build_info, invalid.__cause__ = SimpleNamespace(torch_version="2.10.0+cu128"), failure  # type: ignore[attr-defined]
    stand.lib._cpp_library_load_exception = invalid  # type: ignore[attr-defined]
    with pytest.raises(UserError) as caught:
        XformersEngine("cuda")
    told = "(built for torch 2.10.0+cu128; libcudart.so.12: cannot open shared object file)"
    assert told in str(caught.value)
    XformersEngine.require()  # what the ops say, they say of a GPU
    stand.lib._built_with_cuda = False  # type: ignore[attr-defined]
    with pytest.raises(UserError) as caught:
        XformersEngine.require()
    assert f"no op of xformers 0.0.35 is built for torch {torch.__version__} {told}" in str(caught.value)
    assert "install an xformers and a torch that fit each other where --python points" in str(caught.value)


def test_one_op_that_is_not_built_is_turned_down_in_xformers_words(stand: Stand) -> None:
    stand.ops["fa3"].lacks = ("operator wasn't built - see `python -m xformers.info` for more info",)
    call = XformersEngine("cuda").prepare(Cell.parse(PREFILL.replace("causal", "none")))
    assert call.claimed() == {"attention": "xformers:fa2F"}
    ((turned_down,),) = call.explain().values()
    assert "fa3F@0.0.0 fa2F@2.5.7-pt" in XformersEngine("cuda").switches()["xformers.ops"]
    assert (turned_down.path, [str(reason) for reason in turned_down.reasons]) == (
        "xformers:fa3F",
        list(stand.ops["fa3"].lacks),
    )


@pytest.mark.usefixtures("stand")
@pytest.mark.parametrize(
    ("cell", "op", "claim"),
    [
        (PREFILL.replace("causal", "none"), "attention", "fa3F"),
        (DECODE, SHORT_QUERY, "fa2F"),
        (DECODE.replace("contiguous", "ragged"), RAGGED, "triton_splitKF"),
        (DECODE.replace("k512", "k128"), "attention", "fa3F"),
        (DECODE.replace("h8x2", "h8x8"), "attention", "fa3F"),
    ],
)
def test_xformers_first_choice_is_no_fallback_whichever_op_it_is(cell: str, op: str, claim: str) -> None:
    engine = XformersEngine("cuda")
    assert {name: [path.name.partition(":")[2] for path in paths] for name, paths in engine.paths().items()} == {
        "attention": ["fa3F", "fa2F", "cutlassF"],
        SHORT_QUERY: ["fa2F", "triton_splitKF", "cutlassF"],
        RAGGED: ["triton_splitKF", "fa3F", "fa2F", "cutlassF"],
    }
    call = engine.prepare(Cell.parse(cell))
    assert call.claimed() == {op: f"xformers:{claim}"} == {op: engine.paths()[op][0].name}
    assert call.explain() == {op: ()}


def test_orders_that_are_one_have_one_name(stand: Stand) -> None:
    stand.module._dispatch_fw_priority_list = lambda *_: [stand.ops["fa2"]]
    assert orders("cuda") == {("fa2F",): "attention"}


def test_what_is_not_known_of_a_newer_xformers_is_one_line(stand: Stand) -> None:
    engine = XformersEngine("cuda")
    stand.module._dispatch_fw_priority_list = lambda *_: [stand.ops["cutlass"], stand.ops["fa2"]]
    with pytest.raises(UserError, match=r"xformers 0.0.35 tries cutlassF, fa2F for decode/.*, in an order that this"):
        engine.prepare(Cell.parse(DECODE))
    stand.module._dispatch_fw_priority_list = lambda *_: [Op("fa5F@5.0")]
    with pytest.raises(UserError, match=r"xformers 0.0.35 tries fa5F that this adapter does not know; install 0.0.35"):
        XformersEngine("cuda")


def test_what_no_op_takes_is_refused_with_the_reasons_of_each_that_was_tried(stand: Stand) -> None:
    for short, op in stand.ops.items():
        op.lacks = (f"not for {short}", "device=cpu (supported: {'cuda'})")
    with pytest.raises(Declined) as caught:
        XformersEngine("cuda").prepare(Cell.parse(DECODE)).run(span)
    device = "device=cpu (supported: {'cuda'})"
    assert str(caught.value) == (
        f"fa2F: not for fa2, {device}; triton_splitKF: not for split, {device}; cutlassF: not for cutlass, {device}"
    )


@pytest.mark.usefixtures("stand")
@pytest.mark.parametrize(
    ("kernel", "path"),
    [
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Coll", "fa3F"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false>>", "fa2F"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>", "fa2F"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t", "cutlassF"),
        ("_fwd_kernel_splitK", "triton_splitKF"),
    ],
)
def test_each_op_has_kernels_of_its_own(kernel: str, path: str) -> None:
    assert path_shown([kernel], XformersEngine("cuda").paths()[RAGGED]) == f"xformers:{path}"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (PREFILL.replace("plain", "softcap"), "no argument for softcap"),
        (PREFILL.replace("kv-bf16", "kv-fp8_e4m3"), "one dtype"),
        (PREFILL.replace("causal", "custom"), "no tensor bias"),
        (PREFILL.replace("causal", "window8").replace("contiguous", "paged16"), "window over pages"),
        (PREFILL.replace("/none/", "/neox/"), "after RoPE"),
    ],
)
def test_what_cannot_be_said_is_skipped(cell: str, why: str) -> None:
    found = XformersEngine.supports(object.__new__(XformersEngine), Cell.parse(cell))
    assert isinstance(found, Skipped)
    assert why in found.reason


def test_rows_of_packed_keys() -> None:
    skewed = f"{PREFILL}skew"
    assert kv_rows(Cell.parse(skewed.replace("contiguous", "ragged"))) == 32 + 21 + 10
    assert kv_rows(Cell.parse(skewed.replace("contiguous", "paged16"))) == (2 + 2 + 1) * 16
    assert kv_rows(Cell.parse(skewed)) == 3 * 32


def test_the_order_of_a_set_in_a_reason_is_the_same_in_every_process() -> None:
    op = Op("fa2F@2.5.7-pt", ("dtype=torch.float32 (supported: {torch.float16, torch.bfloat16})",))
    assert reasons(op, None) == ["dtype=torch.float32 (supported: {torch.bfloat16, torch.float16})"]
    assert name_of(op) == "fa2F"  # without its version


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> XformersEngine:
    """The engine on a CPU by the xFormers that is installed, as if its torch were one for CUDA: all but the kernels."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    pytest.importorskip("xformers")
    tensor = torch.tensor
    monkeypatch.setattr(torch, "tensor", lambda data, **options: tensor(data, **(options | {"pin_memory": False})))
    engine = object.__new__(XformersEngine)
    engine._device, engine._version, engine._ops = "cpu", "installed", orders("cpu")
    return engine


def test_the_installed_xformers_has_the_orders_that_kaudit_knows(installed: XformersEngine) -> None:
    assert set(installed.paths()) == {"attention", SHORT_QUERY, RAGGED}


@pytest.mark.parametrize("layout", ["contiguous", "paged16", "ragged"])
@pytest.mark.parametrize("mask", ["none", "causal", "window8"])
@pytest.mark.parametrize("shape", ["prefill/b2q32k32", "decode/b2q1k40skew", "decode/b2q1k512", "mixed/b3q8k32skew"])
def test_on_a_cpu_every_op_says_why_not(layout: str, mask: str, shape: str, installed: XformersEngine) -> None:
    phase, lengths = shape.split("/")
    cell = Cell.parse(f"{phase}/bf16/kv-bf16/h8x2x64/{layout}/{mask}/none/plain/{lengths}")
    if installed.supports(cell) is not None:
        return
    call = installed.prepare(cell)
    call._inputs.validate_inputs()
    with pytest.raises(Declined) as caught:
        call.run(span)
    said = str(caught.value)
    assert "\n" not in said
    for path in installed.paths()[call._op]:
        assert re.search(rf"{path.name.removeprefix('xformers:')}: [^;]*device=cpu", said)


def span(_: str) -> Any:
    return nullcontext()
