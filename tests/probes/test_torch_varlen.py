"""The adapter of varlen_attn. It has no kernel for a CPU: without a GPU, what it is called with is tested."""

import logging
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from attention_for_tests import outcomes

from kaudit.cell import Cell
from kaudit.matrix import expand, load
from kaudit.observation import Crashed, Ran, Refused, Skipped
from kaudit_probes.engines.declined import Declined
from kaudit_probes.engines.torch_attention import SHORT_QUERY
from kaudit_probes.engines.torch_varlen import VarlenEngine, arguments, cudnn_unmet

NEW = frozenset({"window_size", "enable_gqa", "seqused_k", "block_table"})


def cell(layout: str, mask: str, shape: str, phase: str = "decode", heads: str = "h4x2x64") -> Cell:
    return Cell.parse(f"{phase}/bf16/kv-bf16/{heads}/{layout}/{mask}/none/plain/{shape}")


def test_a_ragged_batch_is_packed() -> None:
    given = arguments(cell("ragged", "causal", "b4q8k64skew", "mixed"), "cpu", NEW)
    assert given["query"].shape == (18, 4, 64)
    assert given["key"].shape == given["value"].shape == (160, 2, 64)
    assert given["cu_seq_q"].tolist() == [0, 8, 16, 17, 18]
    assert given["cu_seq_k"].tolist() == [0, 64, 112, 144, 160]
    assert (given["max_q"], given["max_k"], given["window_size"], given["enable_gqa"]) == (8, 64, (-1, 0), True)


def test_a_paged_batch_brings_its_block_table() -> None:
    given = arguments(cell("paged16", "window8", "b2q1k40skew"), "cpu", NEW)
    assert given["key"].shape == (5, 16, 2, 64)  # 40 and 20 tokens
    assert given["block_table"].shape == (2, 3)
    assert given["block_table"].dtype == given["seqused_k"].dtype == torch.int32
    assert given["seqused_k"].tolist() == [40, 20]
    assert given["window_size"] == (7, 0)  # keys before the query's own


def test_older_torch_has_fewer_arguments() -> None:
    assert "window_size" not in arguments(cell("ragged", "none", "b2q1k40"), "cpu", NEW)
    old = arguments(cell("ragged", "causal", "b2q1k40"), "cpu", frozenset({"is_causal"}))
    assert old["is_causal"] is True
    assert not old.keys() & NEW


@pytest.mark.parametrize(
    ("tried", "word"),
    [
        (cell("contiguous", "causal", "b2q1k40"), "ragged or paged"),
        (cell("ragged", "custom", "b2q1k40"), "no mask"),
        (cell("ragged", "causal", "b2q1k40", heads="h4x4x192x128"), "head dim"),
    ],
)
def test_what_the_function_cannot_be_told_is_skipped(tried: Cell, word: str) -> None:
    match VarlenEngine("cpu").supports(tried):
        case Skipped(reason):
            assert word in reason
        case other:
            pytest.fail(str(other))


def test_what_the_installed_torch_lacks_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def varlen_attn(query: object, key: object, value: object, is_causal: bool = False) -> None: ...

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    engine = VarlenEngine("cpu")
    absent = f"varlen_attn of torch {torch.__version__} has no "
    assert engine.supports(cell("paged16", "window8", "b2q1k40")) == Skipped(
        absent + "block_table and no seqused_k and no window_size"
    )
    assert engine.supports(cell("ragged", "causal", "b2q1k40")) is None


@pytest.mark.parametrize(
    ("reaches_cudnn", "paths", "of_short"),
    [(False, ["flash"], ["flash"]), (True, ["cudnn", "flash"], ["flash", "cudnn"])],
)
def test_cudnn_is_a_path_where_torch_can_take_it(
    monkeypatch: pytest.MonkeyPatch, reaches_cudnn: bool, paths: list[str], of_short: list[str]
) -> None:
    monkeypatch.delattr("torch.nn.attention.varlen._can_use_cudnn", raising=False)
    if reaches_cudnn:
        monkeypatch.setattr("torch.nn.attention.varlen._can_use_cudnn", lambda: True, raising=False)
    engine = VarlenEngine("cpu")
    listed = {op: [path.name.removeprefix("varlen:") for path in of_op] for op, of_op in engine.paths().items()}
    assert listed == {"attention": paths, SHORT_QUERY: of_short}


@pytest.mark.parametrize(
    ("said", "claim", "q_len", "turned_down"),
    [
        ("Using cuDNN backend for varlen_attn", "varlen:cudnn", 129, False),
        ("Using Flash Attention backend for varlen_attn", "varlen:flash", 129, True),
        ("Using Flash Attention backend for varlen_attn", "varlen:flash", 128, False),
    ],
)
def test_what_it_logs_below_warning_is_its_claim_and_reaches_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: str,
    claim: str,
    q_len: int,
    turned_down: bool,
) -> None:
    op = "attention" if q_len > 128 else SHORT_QUERY
    logger = logging.getLogger("torch.nn.attention.varlen")
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda **_: logger.info(said))
    monkeypatch.setattr("torch.nn.attention.varlen._can_use_cudnn", lambda: True, raising=False)
    monkeypatch.setattr("kaudit_probes.engines.torch_varlen.signature", lambda _: SimpleNamespace(parameters=NEW))
    call = VarlenEngine("cpu").prepare(cell("ragged", "causal", f"b2q{q_len}k{q_len}", "prefill"))
    assert call.claimed() == {}
    ops: list[str] = []
    call.run(lambda span: ops.append(span) or nullcontext())  # type: ignore[func-returns-value]
    assert ops == [op]
    assert call.claimed() == {op: claim}
    assert call.explain().keys() == ({op} if turned_down else set())
    assert not caplog.records


def test_what_cudnn_misses() -> None:
    assert cudnn_unmet(cell("ragged", "none", "b2q129k129", "prefill", "h4x4x64")) == ()
    every = cudnn_unmet(cell("ragged", "causal", "b2q129k129", "prefill", "h4x2x36"))
    assert [unmet.axis for unmet in every] == ["head_dim", "mask", "gqa_ratio"]
    assert all(str(unmet).startswith("kaudit: ") for unmet in every)


def test_on_a_cpu_torch_refuses_in_words() -> None:
    tried = cell("ragged", "causal", "b2q1k40")
    (outcome,) = outcomes(VarlenEngine("cpu"), [tried.id]).values()
    assert isinstance(outcome, Refused)
    assert "CPU" in outcome.reason


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("Paged KV cache block size must be divisible by 256", Declined),
        ("FlashAttention only support fp16 and bf16 data type", Declined),
        ("Number of heads in key/value must divide number of heads in query", Declined),
        ("CUDA error: an illegal memory access; expect more", RuntimeError),
        ("CUDA error: operation not supported on global/shared address space", RuntimeError),
        # Mistakes of a caller.
        ("cu_seqlens_q must have dtype int32", RuntimeError),
        ("Expected all tensors to be on the same device, but found cuda:0 and cpu", RuntimeError),
        ("block_table must be on CUDA", RuntimeError),
        ("shape '[2]' is invalid for input of size 3", RuntimeError),
    ],
)
def test_a_check_of_flash_attentions_is_a_refusal_and_a_cuda_error_is_none(
    monkeypatch: pytest.MonkeyPatch, text: str, raised: type[Exception]
) -> None:
    def varlen_attn(**_: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    call = VarlenEngine("cpu").prepare(cell("ragged", "none", "b2q1k40"))
    with pytest.raises((Declined, RuntimeError)) as caught:
        call.run(lambda _: nullcontext())
    assert caught.type is raised


def test_the_shipped_matrix_can_be_expressed() -> None:
    cells = expand(load("torch_varlen")).cells
    assert len(cells) >= 39
    assert [one.id for one in cells if VarlenEngine("cpu").supports(one)] == []


def test_a_call_that_torch_has_to_correct_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def varlen_attn(**_: object) -> None:
        raise ValueError("Expect query and key/value to have the same number of heads. Try setting enable_gqa=True")

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    (outcome,) = outcomes(VarlenEngine("cpu"), [cell("ragged", "none", "b2q1k40").id]).values()
    assert isinstance(outcome, Crashed)


@pytest.mark.gpu
def test_ragged_runs_by_flash_attention() -> None:
    tried = [cell("ragged", "causal", "b2q1k40"), cell("ragged", "causal", "b2q64k64", "prefill")]
    for outcome in outcomes(VarlenEngine("cuda"), [one.id for one in tried], "cuda").values():
        assert isinstance(outcome, Ran)
        assert outcome.path == "varlen:flash"
