"""xFormers' adapter: what is skipped, and, where xFormers is installed, its own reasons for taking none of its ops."""

import re
import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Skipped
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.xformers import XformersEngine, _path, _turned_down
from kaudit_probes.engines.xformers_bias import kv_rows

PREFILL = "prefill/bf16/kv-bf16/h8x2x64/contiguous/causal/none/plain/b3q32k32"


def test_an_absent_xformers_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xformers", None)
    with pytest.raises(UserError, match=r"not installed.*pip install xformers"):
        XformersEngine("cuda")


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


def test_an_op_gives_all_its_reasons_or_is_passed_over() -> None:
    class Op:
        reasons = ("max(query.shape[-1], value.shape[-1]) > 256", "dtype=torch.float32")

        @classmethod
        def not_supported_reasons(cls, inputs: object) -> list[str]:  # noqa: ARG003
            return list(cls.reasons)

    assert [str(reason) for reason in _turned_down("xformers:fa2F", Op, None).reasons] == list(Op.reasons)
    Op.reasons = ()  # type: ignore[assignment]
    (ours,) = _turned_down("xformers:fa2F", Op, None).reasons
    assert str(ours).startswith("kaudit: it takes these inputs")


def test_the_order_of_a_set_in_a_reason_is_the_same_in_every_process() -> None:
    class Op:
        @classmethod
        def not_supported_reasons(cls, inputs: object) -> list[str]:  # noqa: ARG003
            return ["dtype=torch.float32 (supported: {torch.float16, torch.bfloat16})"]

    (reason,) = _turned_down("xformers:fa2F", Op, None).reasons
    assert str(reason) == "dtype=torch.float32 (supported: {torch.bfloat16, torch.float16})"


def test_an_op_is_named_without_its_version() -> None:
    class Op:
        NAME = "fa2F@2.5.7-pt"

    assert _path(Op) == "xformers:fa2F"


@pytest.mark.parametrize("layout", ["contiguous", "paged16", "ragged"])
@pytest.mark.parametrize("mask", ["none", "causal", "window8"])
@pytest.mark.parametrize("shape", ["prefill/b2q32k32", "decode/b2q1k40skew", "mixed/b3q8k32skew"])
def test_on_a_cpu_every_op_says_why_not(layout: str, mask: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xformers")
    tensor = torch.tensor
    monkeypatch.setattr(torch, "tensor", lambda data, **options: tensor(data, **(options | {"pin_memory": False})))
    phase, lengths = shape.split("/")
    cell = Cell.parse(f"{phase}/bf16/kv-bf16/h8x2x64/{layout}/{mask}/none/plain/{lengths}")
    engine = XformersEngine("cpu")
    if engine.supports(cell) is not None:
        return
    call = engine.prepare(cell)
    call._inputs.validate_inputs()
    with pytest.raises(Declined) as caught:
        call.run(span)
    said = str(caught.value)
    assert "\n" not in said
    for path in engine.paths()["attention"]:
        assert re.search(rf"{path.name.removeprefix('xformers:')}: [^;]*device=cpu", said)


def span(_: str) -> Any:
    return nullcontext()
