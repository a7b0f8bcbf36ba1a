"""Heads from presets and from Hugging Face configs."""

import json
from pathlib import Path

import pytest

from kaudit.cell import Heads
from kaudit.matrix import load
from kaudit.matrix.heads import from_config, from_preset, presets, split

CONFIGS = Path(__file__).parents[3] / "shared" / "configs"
LLAMA = {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}


def read(folder: Path, config: object) -> str:
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(from_config(file))


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (LLAMA, "h32x8x128"),
        (LLAMA | {"head_dim": 64}, "h32x8x64"),
        (LLAMA | {"head_dim": None}, "h32x8x128"),
        ({"text_config": LLAMA, "hidden_size": 1}, "h32x8x128"),
        ({"num_attention_heads": 16, "hidden_size": 1024}, "h16x16x64"),
        ({"num_attention_heads": 71, "hidden_size": 4544, "multi_query": True}, "h71x1x64"),
        (
            {"num_attention_heads": 128, "hidden_size": 8192, "multi_query": True, "num_kv_heads": 8}
            | {"new_decoder_architecture": True},
            "h128x8x64",
        ),
        ({"num_attention_heads": 32, "multi_query_group_num": 2, "kv_channels": 128}, "h32x2x128"),
        (LLAMA | {"head_dim": 192, "v_head_dim": 128}, "h32x8x192x128"),
        (LLAMA | {"head_dim": 64, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, "h32x8x192x128"),
    ],
)
def test_config(tmp_path: Path, config: object, heads: str) -> None:
    assert read(tmp_path, config) == heads


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ([1], "not a JSON object"),
        ({}, "no num_attention_heads"),
        (LLAMA | {"num_key_value_heads": None}, "num_key_value_heads is null, not a count"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads is 0, not a count"),
        (LLAMA | {"num_attention_heads": True}, "num_attention_heads is true, not a count"),
        (LLAMA | {"head_dim": [64, 128]}, r"head_dim is \[64, 128\], not a count"),
        (LLAMA | {"num_attention_heads": 24}, "no head_dim, and hidden_size=4096 is not a multiple of 24 heads"),
        ({"num_attention_heads": 24}, "no hidden_size"),
        (LLAMA | {"qk_nope_head_dim": 64, "qk_rope_head_dim": 32}, "no v_head_dim"),
    ],
)
def test_config_that_does_not_say(tmp_path: Path, config: object, fault: str) -> None:
    with pytest.raises(ValueError, match=f"config.json: {fault}"):
        read(tmp_path, config)


@pytest.mark.parametrize(
    ("heads", "tp", "rank"),
    [
        ("h32x8x128", 1, "h32x8x128"),
        ("h32x8x128", 4, "h8x2x128"),
        ("h32x8x128", 16, "h2x1x128"),
        ("h4x1x256", 4, "h1x1x256"),
    ],
)
def test_split_over_ranks(heads: str, tp: int, rank: str) -> None:
    assert str(split(Heads.parse(heads), tp)) == rank


@pytest.mark.parametrize(
    ("heads", "tp", "fault"),
    [
        ("h32x8x128", 3, "does not divide 32 query heads"),
        ("h24x6x64", 4, "neither divides 6 KV heads nor is a multiple"),
    ],
)
def test_split_that_does_not_come_out_even(heads: str, tp: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        split(Heads.parse(heads), tp)


def test_a_matrix_reads_presets_and_configs_beside_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "config.json").write_text(json.dumps(LLAMA))
    file = tmp_path / "m.yaml"
    file.write_text("axes: {heads: [{model: llama-3.1-8b}, {config: models/config.json, tp: 2}, h32x8x128]}")
    assert [str(heads) for heads in load(str(file)).axes.heads] == ["h32x8x128", "h16x4x128"]


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the collection of real configs is not here")
@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("deepseek-v3", "aic__deepseek-ai--DeepSeek-V3_config.json"),
        ("gemma-2-9b", "ome__gemma_2_9b.json"),
        ("gemma-3-1b", "mlc__gemma3_1b_it.json"),
        ("gemma-3-27b", "ome__gemma3.json"),
        ("gpt-oss-20b", "aic__openai--gpt-oss-20b_config.json"),
        ("llama-3.1-405b", "aic__meta-llama--Meta-Llama-3.1-405B_config.json"),
        ("llama-3.1-70b", "aic__meta-llama--Meta-Llama-3.1-70B_config.json"),
        ("llama-3.1-8b", "aic__meta-llama--Meta-Llama-3.1-8B_config.json"),
        ("llama-3.2-1b", "ome__llama3_2_1b.json"),
        ("mistral-7b", "ome__mistral.json"),
        ("mixtral-8x7b", "ome__mixtral.json"),
        ("phi-3.5-mini", "mlc__phi-3_5.json"),
        ("phi-4", "ttmetal__phi-4.json"),
        ("qwen3-30b-a3b", "aic__Qwen--Qwen3-30B-A3B_config.json"),
        ("qwen3-32b", "aic__Qwen--Qwen3-32B_config.json"),
        ("qwen3-8b", "aic__Qwen--Qwen3-8B_config.json"),
    ],
)
def test_preset_agrees_with_the_models_config(model: str, config: str) -> None:
    assert from_preset(model) == from_config(CONFIGS / config)


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the collection of real configs is not here")
def test_every_real_config_is_read_or_refused_in_one_line() -> None:
    refused = []
    for file in CONFIGS.glob("*.json"):
        try:
            from_config(file)
        except ValueError as error:
            assert "\n" not in str(error)
            refused.append(file.name)
    assert len(refused) < 15


def test_presets_are_named_in_order() -> None:
    assert list(presets()) == sorted(presets())
