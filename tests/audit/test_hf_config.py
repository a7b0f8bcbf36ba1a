"""What is read out of a Hugging Face config, each expectation worked out by hand from the model's own code."""

import json
from pathlib import Path
from typing import Any

import pytest
from configs_for_tests import (
    CHATGLM,
    DBRX,
    DECI,
    DEEPSEEK,
    DEEPSEEK_V4,
    GEMMA2,
    GEMMA3,
    GEMMA4,
    GPT2,
    GPT_OSS,
    KIMI_LINEAR,
    LLAMA,
    LLAMA4,
    MIMO,
    MLLAMA,
    MODELS,
    NEMOTRON_H,
    OLMO3,
    PHI2,
    PHI3,
    QWEN3_5,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kaudit.hf_config import Group, Model, read_model


def read(folder: Path, config: object) -> Model:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return read_model(file)


def told(group: Group) -> str:
    form = f" {group.form}" if group.form != "plain" else ""
    features = "+".join(group.features) or "plain"
    return f"{group.layers}: {group.heads} {group.mask} {group.rope} {features} {group.most}{form}"


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        (LLAMA, ["32: h32x8x128 causal neox plain 8192"]),
        # Layer 0 slides: transformers' Gemma 2 has (i + 1) % 2 for sliding.
        (GEMMA2, ["3: h32x8x256 window4096 neox softcap 8192", "2: h32x8x256 causal neox softcap 8192"]),
        (
            GEMMA3,
            ["52: h32x16x128 window1024 neox plain 131072", "10: h32x16x128 causal neox+linear plain 131072"],
        ),
        (
            GPT_OSS,
            ["2: h64x8x64 window128 neox+yarn sinks 131072", "2: h64x8x64 causal neox+yarn sinks 131072"],
        ),
        (
            DEEPSEEK,
            [
                "61: h128x128x192x128 causal interleaved+yarn plain 163840 expanded",
                "61: h128x1x576x512 causal interleaved+yarn plain 163840 absorbed",
            ],
        ),
        (LLAMA4, ["36: h40x8x128 causal interleaved plain 8192", "12: h40x8x128 causal none plain 1048576"]),
        (QWEN3_5, ["2: h24x4x256 causal neox plain 262144"]),
        (MIMO, ["2: h64x4x192x128 causal neox plain 8192", "4: h64x8x192x128 window128 neox sinks 8192"]),
        (GEMMA4, ["5: h16x8x256 window1024 neox plain 8192", "1: h16x2x512 causal neox plain 8192"]),
        (DBRX, ["40: h48x8x128 causal neox plain 32768"]),
        (DECI, ["1: h64x8x128 causal neox+llama3 plain 8192", "1: h64x4x128 window512 neox+llama3 plain 8192"]),
        (NEMOTRON_H, ["1: h32x8x128 causal none plain 8192"]),
        (
            KIMI_LINEAR,
            [
                "2: h128x128x192x128 causal none plain 163840 expanded",
                "2: h128x1x576x512 causal none plain 163840 absorbed",
            ],
        ),
        (GPT2, ["12: h12x12x64 causal none plain 1024"]),
        (PHI2, ["12: h32x32x80 causal neox plain 1024"]),
        (PHI3, ["32: h32x8x128 causal neox plain 8192"]),
        (CHATGLM, ["28: h32x2x128 causal interleaved plain 8192"]),
        (OLMO3, ["6: h32x8x128 window4096 neox plain 8192", "2: h32x8x128 causal neox+yarn plain 8192"]),
        (MLLAMA, ["3: h32x8x128 causal neox plain 8192"]),
        (
            DEEPSEEK_V4,
            [
                "1: h64x1x512 window128 interleaved sinks 8192",
                "2: h64x1x512 window128 interleaved+yarn sinks 8192",
            ],
        ),
        (LLAMA | {"sliding_window": 4096}, ["32: h32x8x128 window4096 neox plain 8192"]),
        (LLAMA | {"sliding_window": 4096, "use_sliding_window": False}, ["32: h32x8x128 causal neox plain 8192"]),
        (LLAMA | {"sliding_window": 4096, "model_type": "qwen2"}, ["32: h32x8x128 causal neox plain 8192"]),
        (
            LLAMA | {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28},
            ["28: h32x8x128 causal neox plain 8192", "4: h32x8x128 window4096 neox plain 8192"],
        ),
        (
            LLAMA | {"model_type": "exaone4", "sliding_window": 4096, "sliding_window_pattern": "LLLG"},
            ["24: h32x8x128 window4096 neox plain 8192", "8: h32x8x128 causal none plain 8192"],
        ),
        (LLAMA | {"model_type": "bloom", "num_key_value_heads": 32}, ["32: h32x32x128 causal none plain 8192"]),
        (LLAMA | {"rope_scaling": {"type": "mrope", "mrope_section": [16]}}, ["32: h32x8x128 causal neox plain 8192"]),
    ],
)
def test_layers_that_look_alike(tmp_path: Path, config: dict[str, Any], groups: list[str]) -> None:
    assert [told(group) for group in read(tmp_path, config).groups] == groups


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (GEMMA2, "scores are scaled by 1/sqrt(224), not 1/sqrt(head_dim)"),
        (GEMMA3, "vision_config: that model's own attention"),
        (GPT_OSS, "weights quantised (mxfp4): projections are no cells"),
        (GPT_OSS, "the file has no dtype that cells know: bf16 assumed"),
        (DEEPSEEK, "partial rotation: 64 of 192 elements of a head"),
        (
            DEEPSEEK,
            "MLA: K and V are one latent, which cells with absorbed heads hold twice; mixed batches run both forms",
        ),
        (DEEPSEEK | {"index_topk": 2048}, "sparse attention to the 2048 best keys of an indexer: written without it"),
        (LLAMA4, "attention in chunks of 8192 tokens: written as causal, which the first chunk is"),
        (QWEN3_5, "6 of 8 layers: linear_attention"),
        (QWEN3_5, "mrope (positions in time, height and width): the rope is of text positions"),
        (QWEN3_5, "head_dim is not in the file: 256, qwen3_5_text's default"),
        (GEMMA4, "proportional rope scaling: written without scaling (in 1 of 6 attention layers)"),
        (NEMOTRON_H, "3 of 6 layers: mamba"),
        (PHI2, "partial rotation: 32 of 80 elements of a head"),
        (PHI3, "longrope rope scaling: written without scaling"),
        (PHI3, "sliding_window=262144 never binds within 8192 positions: written as causal"),
        (CHATGLM, "partial rotation: 64 of 128 elements of a head"),
        (MLLAMA, "1 of 4 layers: cross_attention"),
        (DEEPSEEK_V4, "2 of 3 layers see compressed keys beyond the window: written without them"),
        (LLAMA | {"alibi": True}, "ALiBi biases"),
        (
            LLAMA | {"max_position_embeddings": None},
            "the file has no max_position_embeddings: lengths up to 8192 assumed",
        ),
        (LLAMA | {"num_hidden_layers": None}, "the file has no num_hidden_layers: one layer stands for all"),
        (
            LLAMA | {"quantization_config": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}},
            "KV cache quantised to NVFP4: no kv_dtype says it",
        ),
    ],
)
def test_what_no_cell_says_is_noted(tmp_path: Path, config: dict[str, Any], note: str) -> None:
    assert note in read(tmp_path, config).notes


@pytest.mark.parametrize(
    ("quantised", "kv_cache"),
    [
        ({"quant_method": "fp8"}, None),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8_e4m3"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"kv_cache_scheme": None, "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
    ],
)
def test_kv_cache_of_the_checkpoint(tmp_path: Path, quantised: dict[str, Any], kv_cache: str | None) -> None:
    outer = {"text_config": LLAMA, "quantization_config": quantised}
    assert read(tmp_path, outer).kv_cache == kv_cache


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"model_type": "rwkv5", "num_hidden_layers": 32}, "rwkv5 has no attention, and cells are attention"),
        ({"model_type": "t5", "num_heads": 8}, "t5 is an encoder or has one, and only decoders are read"),
        (LLAMA | {"is_encoder_decoder": True}, "llama is an encoder or has one, and only decoders are read"),
        (LLAMA | {"layer_types": ["conv", "mlp"]}, r"llama has no attention layers \(they are: conv\)"),
        (LLAMA | {"layer_types": ["sliding_attention"]}, "layers slide, and no sliding_window says how far"),
        (LLAMA | {"num_hidden_layers": 10**30}, "1" + "0" * 30 + " layers, and no model has more than 1000"),
        (LLAMA | {"hybrid_override_pattern": "*" * 9000, "num_hidden_layers": None}, "9000 layers, and no model has"),
        (LLAMA | {"num_key_value_heads": 5}, "5 KV heads do not divide 32 query heads"),
        ({"text_config": {"model_type": "llama"}}, "no num_attention_heads"),
    ],
)
def test_what_has_no_attention_to_read(tmp_path: Path, config: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"config.json: {fault}.*; name another config.json, or write heads as"):
        read(tmp_path, config)


KEYS = sorted({key for config in MODELS for key in config})
VALUES = st.none() | st.booleans() | st.integers(-1, 200) | st.floats() | st.sampled_from(["yarn", "x\ny", "", "LG"])


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([LLAMA, GEMMA4, DEEPSEEK, MIMO, DECI, KIMI_LINEAR, GPT2]),
    st.dictionaries(
        st.sampled_from(KEYS),
        VALUES
        | st.lists(VALUES, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "rope_type", "attention"]), VALUES),
        max_size=4,
    ),
)
def test_any_config_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], changes: dict[str, Any]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        model = read(folder, config | changes)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert all(note.isprintable() for note in (model.kind, *model.notes))
