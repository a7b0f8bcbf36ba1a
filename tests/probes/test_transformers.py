"""One-layer models of transformers on a CPU: what they make of a cell, and what one padded row does to a batch."""

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Crashed, Outcome, Ran, Refused, Skipped, is_silent_fallback
from kaudit_probes.capture import Capture
from kaudit_probes.engines import Heard, Listed
from kaudit_probes.engines.transformers_model import (
    UNCAPPED,
    TransformersEagerEngine,
    TransformersEngine,
    TransformersFlashEngine,
    mask_made,
    padding,
)
from kaudit_probes.observe import Observer

PREFILL = "prefill/bf16/kv-bf16/h8x2x64/contiguous/causal/neox/plain/b3q32k32"
CHUNK = "chunked_prefill/bf16/kv-bf16/h8x2x64/contiguous/causal/neox/plain/b3q16k32"
DECODE = "decode/bf16/kv-bf16/h8x2x64/contiguous/causal/neox/plain/b3q1k32"
WINDOWED = PREFILL.replace("causal", "window8")
SINKS = PREFILL.replace("plain", "sinks")
SOFTCAP = PREFILL.replace("plain", "softcap")


def ran(engine: type[TransformersEngine], *cells: str) -> dict[str, Ran]:
    observer = Observer(engine("cpu"), Capture("cpu"), lambda _: None)
    observed = observer.observe([Cell.parse(cell) for cell in cells])
    assert observed.redo == {}
    outcomes = {row.cell: row.outcome for row in observed.rows if isinstance(row.outcome, Ran)}
    assert outcomes.keys() == set(cells), observed.rows
    return outcomes


def names(row: Ran) -> set[str]:
    return {kernel.name for kernel in row.kernels}


def test_one_padded_row_makes_a_mask_for_all() -> None:
    pytest.importorskip("transformers")
    rows = ran(TransformersEngine, PREFILL, f"{PREFILL}skew", DECODE, f"{DECODE}skew")
    for even in (PREFILL, DECODE):
        assert names(rows[even]) == {"aten::_scaled_dot_product_flash_attention_for_cpu"}
        padded = rows[f"{even}skew"]
        assert "aten::where" in names(padded)
        assert padded.path == padded.claimed == "sdpa:flash"


def test_a_chunk_and_a_full_window_make_a_mask_too() -> None:
    pytest.importorskip("transformers")
    wide = PREFILL.replace("causal", "window64")
    rows = ran(TransformersEngine, CHUNK, WINDOWED, wide, DECODE.replace("causal", "window8"))
    assert {cell for cell, row in rows.items() if "aten::where" in names(row)} == rows.keys() - {wide}


def test_a_class_without_sdpa_is_served_by_its_eager_function_without_a_word() -> None:
    pytest.importorskip("transformers")
    row = ran(TransformersEngine, SINKS)[SINKS]
    assert row.path == row.claimed == "unfused"
    assert not row.explains("sdpa:flash")
    assert {"aten::bmm", "aten::_softmax"} <= names(row)
    (turned_down,) = row.rejections
    assert turned_down.path == "sdpa:flash"
    assert "GptOssModel" in str(turned_down.reasons[0])


@pytest.mark.parametrize("engine", [TransformersEngine, TransformersEagerEngine])
def test_where_sdpa_drops_a_model_s_softcap_the_op_says_so(engine: type[TransformersEngine]) -> None:
    """5.17 drops it; 5.24 serves such a model by its eager function."""
    pytest.importorskip("transformers")
    (row,) = Observer(engine("cpu"), Capture("cpu"), lambda _: None).observe([Cell.parse(SOFTCAP)]).rows
    assert isinstance(row.outcome, Ran)
    assert row.outcome.path == row.outcome.claimed
    assert row.op == ("attention" if "aten::tanh" in names(row.outcome) else UNCAPPED)


def test_eager_is_unfused_where_it_is_asked_for() -> None:
    pytest.importorskip("transformers")
    for row in ran(TransformersEagerEngine, PREFILL, DECODE, WINDOWED).values():
        assert (row.path, row.claimed, row.rejections) == ("unfused", "unfused", ())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ValueError("LlamaModel does not support an attention implementation through scaled_dot_product_attention"),
            Refused,
        ),
        (ImportError("FlashAttention2 has been toggled on, but it cannot be used: not installed"), Refused),
        (ValueError("not enough values to unpack (expected 3, got 2)"), Crashed),
        (ImportError("cannot import name 'AutoModel'"), Crashed),
    ],
)
def test_a_mistake_is_no_refusal(error: Exception, expected: type[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")

    def fail(*_: object, **__: object) -> None:
        raise error

    for place in ("model", "attention"):
        with monkeypatch.context() as patch:
            if place == "model":
                patch.setattr(transformers.AutoModel, "from_config", fail)
            elif isinstance(error, ValueError):
                patch.setitem(transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS, "sdpa", fail)
            else:
                continue
            observed = Observer(TransformersEngine("cpu"), Capture("cpu"), lambda _: None).observe(
                [Cell.parse(PREFILL)]
            )
            assert [type(row.outcome) for row in observed.rows] == [expected], place


def test_another_implementation_is_claimed_by_its_own_name() -> None:
    pytest.importorskip("transformers")
    call = TransformersEngine("cpu").prepare(Cell.parse(DECODE))
    claims = {}
    for implementation in ("sdpa", "eager", "kernels-community/flash-attn2"):
        call._model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=implementation))
        claims[implementation] = call.claimed()["attention"]
    assert claims == {
        "sdpa": "sdpa:flash",
        "eager": "unfused",
        "kernels-community/flash-attn2": "kernels-community/flash-attn2",
    }


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("You do not have `flash_attn` installed, using `kernels-community/flash-attn2` instead!", True),
        ("Automatically falling back to `flash_attention_3` instead of `flash_attention_2`. Attention", True),
        ("The attention mask and the pad token id were not set.", False),
        ("`torch_dtype` is deprecated! Use `dtype` instead!", False),
    ],
)
def test_only_words_on_falling_back_are_an_announcement(text: str, counts: bool) -> None:
    pytest.importorskip("transformers")
    record = logging.LogRecord("transformers.modeling_utils", logging.WARNING, "", 0, text, None, None)
    announced = TransformersEngine("cpu").announced(Heard((record,), (), ""))
    assert [str(no.reasons[0]) for no in announced.get("attention", ())] == [text] * counts


def flash(monkeypatch: pytest.MonkeyPatch) -> TransformersFlashEngine:
    """The engine that asks for flash-attn, where transformers gives SDPA all the same."""
    transformers = pytest.importorskip("transformers")
    real = transformers.AutoModel.from_config

    def given(*args: Any, **options: Any) -> Any:
        assert options["attn_implementation"] == "flash_attention_2"
        return real(*args, **options | {"attn_implementation": "sdpa"})

    monkeypatch.setattr(transformers.AutoModel, "from_config", given)
    monkeypatch.setattr(TransformersFlashEngine, "require", lambda _: None)
    engine = object.__new__(TransformersFlashEngine)
    TransformersEngine.__init__(engine, "cpu")  # its own wants a GPU
    return engine


def test_sdpa_where_flash_attn_was_asked_for_is_no_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = Observer(flash(monkeypatch), Capture("cpu"), lambda _: None).observe([Cell.parse(PREFILL)]).rows
    assert isinstance(row.outcome, Ran)
    assert row.outcome.path == row.outcome.claimed == "sdpa:flash"
    assert is_silent_fallback(row.outcome, ("flash_attention_2", "sdpa:flash", "unfused"))


def test_who_asks_for_flash_attn_is_told_of_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, text = flash(monkeypatch), "Automatically falling back to `x` instead of `flash_attention_2`. Attention"
    record = logging.LogRecord("transformers.modeling_utils", logging.WARNING, "", 0, text, None, None)
    announced = engine.announced(Heard((record,), (), ""))
    assert {op: [no.path for no in of_op] for op, of_op in announced.items()} == {
        op: ["flash_attention_2"] for op in engine.paths()
    }
    assert engine.announced(Heard((), (), "")) == {}


def test_what_is_said_once_in_a_process_is_heard_in_each_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    said = "Automatically falling back to another attention."
    real = transformers.AutoModel.from_config

    def saying(*args: Any, **options: Any) -> Any:
        logging.getLogger("transformers.modeling_utils").warning_once(said)  # type: ignore[attr-defined]
        return real(*args, **options)

    monkeypatch.setattr(transformers.AutoModel, "from_config", saying)
    assert all(row.explains("sdpa:flash") for row in ran(TransformersEngine, PREFILL, DECODE).values())


def test_every_run_finds_the_same_cache() -> None:
    pytest.importorskip("transformers")
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    served = ALL_ATTENTION_FUNCTIONS["sdpa"]
    seen: list[int] = []
    call = TransformersEngine("cpu").prepare(Cell.parse(DECODE))
    assert call._arguments is not None
    for _ in range(3):
        with_cache = call._arguments.k.shape[2]
        call._forward()
        seen.append(with_cache)
    assert seen == [32, 32, 32]
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is served


def test_shorter_requests_are_padded_on_the_left() -> None:
    assert padding(Cell.parse(DECODE.replace("b3q1k32", "b2q1k4skew"))).tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("cell", "axes"),
    [
        (PREFILL, []),
        (DECODE, []),
        (f"{PREFILL}skew", ["padding"]),
        (CHUNK, ["q_len"]),
        (WINDOWED, ["window"]),
        (CHUNK.replace("causal", "window8") + "skew", ["padding", "q_len", "window"]),
    ],
)
def test_why_a_mask_is_made(cell: str, axes: list[str]) -> None:
    made = list(mask_made(Cell.parse(cell)))
    assert [unmet.axis for unmet in made] == axes
    assert all(str(unmet).startswith("kaudit: ") for unmet in made)  # transformers says none of it


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (PREFILL.replace("contiguous", "paged16"), "DynamicCache"),
        (PREFILL.replace("kv-bf16", "kv-fp8_e4m3"), "one dtype"),
        (PREFILL.replace("x64/", "x64x32/"), "one head_dim"),
        (PREFILL.replace("causal", "custom"), "causal decoders"),
        (PREFILL.replace("neox", "none"), "rotate as neox"),
        (PREFILL.replace("plain", "sinks+softcap"), "no model here"),
        (PREFILL.replace("plain", "cuda_graph"), "no model here"),
        (CHUNK.replace("chunked_prefill", "mixed"), "same number of new tokens"),
    ],
)
def test_what_no_such_model_can_be_given_is_skipped(cell: str, why: str) -> None:
    found = TransformersEngine.supports(object.__new__(TransformersEngine), Cell.parse(cell))
    assert isinstance(found, Skipped)
    assert why in found.reason


def test_absent_libraries_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"transformers: (not installed|does not import).*pip install transformers"):
        TransformersEngine("cpu")


def test_flash_asks_for_flash_attn_and_not_for_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(Listed, "version", lambda _: "")
    with pytest.raises(UserError, match="flash-attn 2 is not installed"):
        TransformersFlashEngine("cpu")
