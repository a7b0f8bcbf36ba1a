"""Heads from presets and from Hugging Face configs."""

import json
from pathlib import Path

import pytest
from configs_for_tests import GEMMA4

from kaudit.cell import Heads
from kaudit.hf_config import read_model
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
        ("aya-23-8b", "mlc__aya-23.json"),
        ("command-r", "ome__command_r_35b.json"),
        ("deepseek-v2-lite", "mlc__deepseek_v2_lite.json"),
        ("exaone-3.5-7.8b", "ome__exaone_7.8b.json"),
        ("falcon-40b", "ttmetal__falcon-40b.json"),
        ("gemma-2-27b", "mlc__gemma2_27b.json"),
        ("gemma-2-2b", "ome__gemma_2_2b.json"),
        ("gemma-7b", "ome__gemma_7b.json"),
        ("glm-4-9b", "ome__glm4_9b.json"),
        ("glm-5", "aic__zai-org--GLM-5_config.json"),
        ("gpt-oss-120b", "aic__openai--gpt-oss-120b_config.json"),
        ("internlm2.5-7b", "mlc__internlm2_5_7b.json"),
        ("kimi-k2", "aic__moonshotai--Kimi-K2-Instruct_config.json"),
        ("llama-2-70b", "mlc__llama2_70b.json"),
        ("llama-2-7b", "mlc__llama2_7b.json"),
        ("llama-3.2-3b", "ome__llama3_2_3b.json"),
        ("llama-4-maverick", "aic__meta-llama--Llama-4-Maverick-17B-128E-Instruct_config.json"),
        ("llama-4-scout", "aic__meta-llama--Llama-4-Scout-17B-16E-Instruct_config.json"),
        ("minimax-m2.5", "aic__MiniMaxAI--MiniMax-M2.5_config.json"),
        ("ministral-3-3b", "mlc__ministral3_3b_2512.json"),
        ("mixtral-8x22b", "aic__mistralai--Mixtral-8x22B-v0.1_config.json"),
        ("nemotron-3-nano-30b-a3b", "aic__nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16_config.json"),
        ("olmo-3.1-32b", "ttmetal__Olmo-3.1-32B-Instruct.json"),
        ("phi-2", "mlc__phi-2.json"),
        ("phi-4-mini", "mlc__phi-4.json"),
        ("qwen2.5-0.5b", "ome__qwen2.5_0.5b.json"),
        ("qwen2.5-1.5b", "ome__qwen2.5_1.5b.json"),
        ("qwen2.5-14b", "ome__qwen2.5_14b.json"),
        ("qwen2.5-32b", "ome__qwen2.5_32b.json"),
        ("qwen2.5-3b", "ome__qwen2.5_3b.json"),
        ("qwen2.5-72b", "ome__qwen2.5_72b.json"),
        ("qwen2.5-7b", "ome__qwen2.5_7b.json"),
        ("qwen3-0.6b", "aic__Qwen--Qwen3-0.6B_config.json"),
        ("qwen3-235b-a22b", "aic__Qwen--Qwen3-235B-A22B_config.json"),
        ("qwen3-4b", "ome__qwen3_4b.json"),
        ("qwen3-coder-480b-a35b", "aic__Qwen--Qwen3-Coder-480B-A35B-Instruct_config.json"),
        ("qwen3.5-27b", "aic__Qwen--Qwen3.5-27B_config.json"),
        ("qwen3.5-35b-a3b", "aic__Qwen--Qwen3.5-35B-A3B_config.json"),
        ("starcoder2-7b", "mlc__starcoder2.json"),
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
@pytest.mark.parametrize(
    ("models", "config"),
    [
        (("deepseek-v2-lite", "deepseek-v2-lite-absorbed"), "mlc__deepseek_v2_lite.json"),
        (("deepseek-v3", "deepseek-v3-absorbed"), "aic__deepseek-ai--DeepSeek-V3_config.json"),
        (("gemma-4-26b-sliding", "gemma-4-26b-full"), "aic__google--gemma-4-26B-A4B_config.json"),
        (("glm-5", "glm-5-absorbed"), "aic__zai-org--GLM-5_config.json"),
        (("kimi-k2", "kimi-k2-absorbed"), "aic__moonshotai--Kimi-K2-Instruct_config.json"),
        (("mimo-v2-flash-full", "mimo-v2-flash-sliding"), "aic__XiaomiMiMo--MiMo-V2-Flash_config.json"),
    ],
)
def test_presets_of_a_model_with_several_kinds_of_heads(models: tuple[str, ...], config: str) -> None:
    assert [from_preset(model) for model in models] == [group.heads for group in read_model(CONFIGS / config).groups]


def test_layers_with_different_heads_are_no_one_value(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layers have different heads; list h16x8x256 and h16x2x512 in its place"):
        read(tmp_path, GEMMA4)


def test_presets_are_named_in_order() -> None:
    assert list(presets()) == sorted(presets())
