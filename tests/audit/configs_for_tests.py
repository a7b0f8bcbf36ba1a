"""Configs of models that differ in what their attention is: what a reader of the real ones looks at, and no more."""

from typing import Any

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
GEMMA2: dict[str, Any] = {
    **LLAMA,
    "model_type": "gemma2",
    "num_hidden_layers": 5,
    "head_dim": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "query_pre_attn_scalar": 224,
}
GEMMA3: dict[str, Any] = {
    "model_type": "gemma3",
    "vision_config": {"num_attention_heads": 16},
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "hidden_size": 5376,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
}
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0},
    "quantization_config": {"quant_method": "mxfp4"},
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "rope_theta": 10000,
    "rope_scaling": {"type": "yarn", "factor": 40},
}
LLAMA4: dict[str, Any] = {
    **LLAMA,
    "model_type": "llama4_text",
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "head_dim": 128,
    "attention_chunk_size": 8192,
    "no_rope_layers": [],
    "max_position_embeddings": 1 << 20,
}
QWEN3_5: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 8,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "hidden_size": 5120,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
}
MIMO: dict[str, Any] = {
    **LLAMA,
    "model_type": "mimo_v2_flash",
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "sliding_window": 128,
    "swa_num_key_value_heads": 8,
    "num_hidden_layers": 6,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
    "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False,
}
GEMMA4: dict[str, Any] = {
    **LLAMA,
    "model_type": "gemma4_text",
    "num_attention_heads": 16,
    "num_hidden_layers": 6,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_global_key_value_heads": 2,
    "sliding_window": 1024,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default"},
    },
}
DBRX: dict[str, Any] = {
    "model_type": "dbrx",
    "n_heads": 48,
    "n_layers": 40,
    "d_model": 6144,
    "max_seq_len": 32768,
    "attn_config": {"kv_n_heads": 8},
    "torch_dtype": "bfloat16",
}
DECI: dict[str, Any] = {
    **LLAMA,
    "model_type": "nemotron-nas",
    "num_attention_heads": 64,
    "num_key_value_heads": None,
    "hidden_size": 8192,
    "num_hidden_layers": 3,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "block_configs": [
        {"attention": {"n_heads_in_group": 8, "no_op": False}},
        {"attention": {"n_heads_in_group": None, "no_op": True}},
        {"attention": {"n_heads_in_group": 16, "window_length": 512}},
    ],
}
NEMOTRON_H: dict[str, Any] = {
    **LLAMA,
    "model_type": "nemotron_h",
    "attention_head_dim": 128,
    "num_hidden_layers": 6,
    "hybrid_override_pattern": "M-M*M-",
    "rope_theta": 10000,
}
KIMI_LINEAR: dict[str, Any] = {
    **DEEPSEEK,
    "model_type": "kimi_linear",
    "num_hidden_layers": 8,
    "mla_use_nope": True,
    "rope_scaling": None,
    "linear_attn_config": {"full_attn_layers": [4, 8]},
}
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_head": 12, "n_embd": 768, "n_layer": 12, "n_positions": 1024}
PHI2: dict[str, Any] = {
    **GPT2,
    "model_type": "phi-msft",
    "n_head": 32,
    "n_embd": 2560,
    "n_head_kv": None,
    "rotary_dim": 32,
}
PHI3: dict[str, Any] = {
    **LLAMA,
    "model_type": "phi3",
    "sliding_window": 262144,
    "rope_scaling": {"type": "longrope", "long_factor": [1.0]},
}
CHATGLM: dict[str, Any] = {
    "model_type": "chatglm",
    "num_attention_heads": 32,
    "kv_channels": 128,
    "num_layers": 28,
    "seq_length": 8192,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "torch_dtype": "float16",
}
OLMO3: dict[str, Any] = {
    **LLAMA,
    "model_type": "olmo3",
    "num_hidden_layers": 8,
    "sliding_window": 4096,
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0},
}
MLLAMA: dict[str, Any] = {
    **LLAMA,
    "model_type": "mllama_text_model",
    "num_hidden_layers": 4,
    "cross_attention_layers": [1],
}
DEEPSEEK_V4: dict[str, Any] = {
    **LLAMA,
    "model_type": "deepseek_v4",
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "num_hidden_layers": 3,
    "compress_ratios": [0, 4, 128, 0],
    "index_topk": 512,
    "rope_scaling": {"type": "yarn", "factor": 16},
}

MODELS = (
    LLAMA,
    GEMMA2,
    GEMMA3,
    GPT_OSS,
    DEEPSEEK,
    LLAMA4,
    QWEN3_5,
    MIMO,
    GEMMA4,
    DBRX,
    DECI,
    NEMOTRON_H,
    KIMI_LINEAR,
    GPT2,
    PHI2,
    PHI3,
    CHATGLM,
    OLMO3,
    MLLAMA,
    DEEPSEEK_V4,
)
