"""A user's config.json behind the transformers engine: each cell runs on the layer that it is, or on none."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_configs import GEMMA2, GEMMA3, GPT_OSS, LLAMA, LLAMA4, MISTRAL, MLA, QWEN3, QWEN3_5, SMALL
from transformers_for_tests import FULL, SLIDING, Tell, layers, rows, telling

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.hf_config import read_model
from kaudit.observation import Skipped
from kaudit_probes.engines.transformers_configs import MODELS
from kaudit_probes.engines.transformers_given import VARIABLE, given
from kaudit_probes.engines.transformers_model import TransformersEagerEngine, TransformersEngine, mask_made
from test_scratch import kaudit

SHARED = Path(__file__).parents[3] / "shared" / "configs"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """The engine, told of a config."""
    return telling(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("config", "model", "expected"),
    [
        (LLAMA, "LlamaModel", ["full_attention h4x2x32/causal/neox/plain"]),
        (QWEN3, "Qwen3Model", ["full_attention h4x2x32/causal/neox/plain"]),
        (MISTRAL, "MistralModel", ["sliding_attention h4x2x32/window8/neox/plain"]),
        (
            GEMMA2,
            "Gemma2Model",
            ["sliding_attention h4x2x32/window8/neox/softcap", "full_attention h4x2x32/causal/neox/softcap"],
        ),
        (
            GEMMA3,
            "Gemma3TextModel",
            ["sliding_attention h4x2x32/window8/neox/plain", "full_attention h4x2x32/causal/neox+linear/plain"],
        ),
        (
            GPT_OSS,
            "GptOssModel",
            ["sliding_attention h4x2x32/window8/neox+yarn/sinks", "full_attention h4x2x32/causal/neox+yarn/sinks"],
        ),
        (MLA, "DeepseekV3Model", ["full_attention h4x4x48x32/causal/interleaved/plain"]),
        (
            LLAMA4,
            "Llama4TextModel",
            ["chunked_attention h4x2x32/causal/interleaved/plain", "full_attention h4x2x32/causal/none/plain"],
        ),
        (QWEN3_5, "Qwen3_5TextModel", ["full_attention h4x2x32/causal/neox/plain"]),  # the others are linear
    ],
)
def test_the_header_says_which_class_and_which_layers(config: Any, model: str, expected: list[str], told: Tell) -> None:
    switches = told(config).switches()
    assert switches["transformers.model"] == model
    assert switches["transformers.layers"].split("; ") == expected
    assert switches["transformers.config"].startswith("small ")
    assert switches["transformers.not_run"] == ("linear_attention" if config is QWEN3_5 else "none")


def test_two_layer_types_land_on_their_own_cells(told: Tell) -> None:
    engine = told(GEMMA3)
    full = FULL.replace("neox", "neox+linear")
    for cell, kind, window in ((full, "full_attention", None), (SLIDING, "sliding_attention", 8)):
        model = engine.prepare(Cell.parse(cell))._model
        (layer,) = model.layers
        assert type(model).__name__ == "Gemma3TextModel"
        assert model.config.layer_types == [kind]
        assert layer.self_attn.sliding_window == window
        assert model.config.vocab_size < 1000 > model.config.intermediate_size
    found = rows(engine, full, SLIDING)
    assert {cell for cell, row in found.items() if "aten::where" in {k.name for k in row.kernels}} == {SLIDING}


def test_sinks_are_served_by_the_class_s_own_eager_function(told: Tell) -> None:
    sinks = FULL.replace("neox/plain", "neox+yarn/sinks")
    row = rows(told(GPT_OSS), sinks)[sinks]
    assert (row.path, row.claimed) == ("unfused", "unfused")
    assert "GptOssModel" in str(row.rejections[0].reasons[0])


def test_one_padded_row_makes_a_mask_for_all(told: Tell) -> None:
    decode = FULL.replace("prefill", "decode").replace("b2q20k20", "b2q1k20")
    found = rows(told(LLAMA), FULL, f"{FULL}skew", decode, f"{decode}skew")
    assert {cell.endswith("skew") for cell, row in found.items() if "aten::where" in {k.name for k in row.kernels}} == {
        True
    }


def test_latent_attention_decodes_over_expanded_heads(told: Tell) -> None:
    """Whatever is cached: K and V, or the latent, as in 5.24."""
    cell = "decode/bf16/kv-bf16/h4x4x48x32/contiguous/causal/interleaved/plain/b2q1k20"
    call = told(MLA).prepare(Cell.parse(cell))
    assert call._arguments.k.shape == (2, 4, 20, 48)
    assert call._arguments.v.shape == (2, 4, 20, 32)


def test_a_chunk_that_binds_is_why_a_mask_is_made(told: Tell) -> None:
    engine = told(LLAMA4)
    cell = Cell.parse(FULL.replace("neox", "interleaved").replace("q20k20", "q16k16"))
    assert engine.supports(cell) is None
    assert engine.prepare(cell)._arguments.mask is not None
    assert [unmet.axis for unmet in mask_made(cell, 16)] == ["chunk"]
    assert not list(mask_made(cell, 17))


@pytest.mark.parametrize(
    ("config", "cell", "why"),
    [
        (GEMMA3, FULL, "no layer of small is h4x2x32/causal/neox/plain: sliding_attention h4x2x32/window8/neox/plain"),
        (LLAMA, FULL.replace("h4x2", "h4x4"), "no layer of small is h4x4x32"),
        (LLAMA, SLIDING, "no layer of small is h4x2x32/window8"),
        (LLAMA, FULL.replace("plain", "sinks"), "no layer of small is h4x2x32/causal/neox/sinks"),
        (LLAMA, FULL.replace("neox", "neox@5"), "no layer of small is h4x2x32/causal/neox@5"),
        (LLAMA, FULL.replace("20k20", "300k300"), "kv_len=300, and small's full_attention has positions for 256"),
        (LLAMA4, FULL.replace("neox", "interleaved"), "kv_len=20, and small's chunked_attention has chunks of 16"),
        (LLAMA, FULL.replace("contiguous", "paged16"), "DynamicCache is contiguous"),
    ],
)
def test_what_no_layer_is_is_skipped_with_what_they_are(config: Any, cell: str, why: str, told: Tell) -> None:
    found = told(config).supports(Cell.parse(cell))
    assert isinstance(found, Skipped)
    assert why in found.reason


def test_a_window_that_never_binds_is_causal(told: Tell) -> None:
    assert layers(told(MISTRAL | {"sliding_window": 256})) == ["sliding_attention h4x2x32/causal/neox/plain"]


def test_two_configs_differ_in_the_header_and_one_spelled_otherwise_does_not(told: Tell) -> None:
    digests = [
        told(said).switches()["transformers.config"]
        for said in (LLAMA, json.dumps(dict(reversed(LLAMA.items())), indent=2), LLAMA | {"rope_theta": 5.0})
    ]
    assert digests[0] == digests[1] != digests[2]


def test_without_a_config_the_header_says_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv(VARIABLE, "")
    engine = TransformersEngine("cpu")
    assert "transformers.config" not in engine.switches()
    assert engine.switches()["transformers.model"] == MODELS
    built = [
        type(engine.prepare(Cell.parse(cell))._model).__name__
        for cell in (FULL, SLIDING, FULL.replace("plain", "softcap"), FULL.replace("plain", "sinks"))
    ]
    assert built == [words.split()[0] for words in MODELS.split("; ")]


def test_what_comes_with_a_model_is_not_run_and_nothing_is_asked_for_but_the_engine_s(told: Tell) -> None:
    config = LLAMA | {
        "auto_map": {"AutoModel": "stranger/repository--modeling.Model"},
        "attn_implementation": "stranger/kernel",
        "_attn_implementation_internal": "stranger/kernel",
        "quantization_config": {"quant_method": "fp8"},
    }
    for engine, expected in ((TransformersEngine, "sdpa"), (TransformersEagerEngine, "eager")):
        model = told(config, engine).prepare(Cell.parse(FULL))._model
        assert model.config._attn_implementation == expected
        assert not hasattr(model.config, "auto_map")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "it has no model_type"),
        ({"model_type": ["llama"]}, "it has no model_type"),
        ({"model_type": "nobody\n's"}, 'transformers knows no model_type "nobody'),
        (SMALL | {"model_type": "t5"}, "is an encoder with a decoder"),
        ({"model_type": "resnet"}, "finds no decoder of text"),
        (SMALL | {"model_type": "mamba"}, "attends by one of transformers' attention functions"),
        (LLAMA | {"hidden_size": "wide"}, "Field 'hidden_size' expected int, got str"),
        (LLAMA | {"num_hidden_layers": 10**9}, "no model has more than 1000"),
        (LLAMA | {"num_attention_heads": 0}, "transformers builds no model of it"),
        (LLAMA | {"hidden_size": 10**15}, "transformers builds no model of it"),
        (
            SMALL | {"model_type": "minimax", "num_local_experts": 2, "layer_types": ["full_attention"] * 4},
            "a layer of MiniMaxModel does not run (ValueError: MiniMax uses cache of its own",
        ),
        (SMALL | {"model_type": "modernbert"}, "ModernBertModel caches no K and V"),
    ],
)
def test_a_config_that_makes_no_decoder_is_one_line(said: object, why: str, told: Tell) -> None:
    with pytest.raises(UserError) as caught:
        told(said)
    (line,) = caught.value.faults
    assert line.startswith(f"{VARIABLE}: ")
    assert why in line
    assert "name a" in line
    assert "\n" not in line


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "absent.json"))
    with pytest.raises(
        UserError, match=r"\AKAUDIT_CONFIG: .*absent.json: No such file or directory; name another file\Z"
    ):
        given("cpu")


def test_a_sweep_over_a_folder_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    out = tmp_path / "table.jsonl"
    swept = kaudit("sweep", "smoke", "--engine", "transformers", "--device", "cpu", "--out", out)
    assert swept.returncode == 2
    (line,) = swept.stderr.splitlines()
    assert f"{VARIABLE}: {tmp_path}: Is a directory; name another file" in line
    assert not out.exists()


@pytest.mark.parametrize(
    "name",
    [
        "mlc__gemma3_1b_it.json",
        "mlc__qwen3_0.6b.json",
        "mlc__llama3_2_1b.json",
        "mlc__qwen2.5_3b.json",
        "mlc__deepseek_v2_lite.json",
        "mlc__gpt2.json",
    ],
)
def test_from_config_makes_cells_that_are_these_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    if not SHARED.is_dir():
        pytest.skip("no real configs here")
    monkeypatch.setenv(VARIABLE, str(SHARED / name))
    found = given("cpu")
    assert found is not None
    groups = [group for group in read_model(SHARED / name).groups if group.form != "absorbed"]
    assert {(layer.heads, layer.mask, layer.rope, layer.features) for layer in found.layers} == {
        (group.heads, group.mask, group.rope, group.features) for group in groups
    }
