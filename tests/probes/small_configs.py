"""Configs of small models that transformers builds on a CPU in no time: each attends in a way of its own."""

from typing import Any

SMALL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_size": 128,
    "intermediate_size": 4096,
    "vocab_size": 1000,
    "max_position_embeddings": 256,
    "pad_token_id": 999,
}
LLAMA = SMALL | {"model_type": "llama", "sliding_window": 8}  # which Llama does not look at
QWEN3 = SMALL | {"model_type": "qwen3", "sliding_window": 8, "use_sliding_window": False}
MISTRAL = SMALL | {"model_type": "mistral", "sliding_window": 8}
GEMMA2 = SMALL | {"model_type": "gemma2", "sliding_window": 8, "query_pre_attn_scalar": 32}
GEMMA3_TEXT = SMALL | {
    "model_type": "gemma3_text",
    "sliding_window": 8,
    "sliding_window_pattern": 2,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
}
GEMMA3 = {"model_type": "gemma3", "text_config": GEMMA3_TEXT, "vision_config": {"model_type": "siglip_vision_model"}}
GEMMA4 = SMALL | {
    "model_type": "gemma4_text",
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "global_head_dim": 64,
    "hidden_size_per_layer_input": 0,
}
GPT_OSS = SMALL | {"model_type": "gpt_oss", "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}
LLAMA4 = SMALL | {"model_type": "llama4_text", "attention_chunk_size": 16, "num_local_experts": 2}
MLA = SMALL | {
    "model_type": "deepseek_v3",
    "head_dim": 16,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
}
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 16}
JAMBA = SMALL | {"model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2}
BAMBA = SMALL | _MAMBA | {"model_type": "bamba", "attn_layer_indices": [2]}
RECURRENT_GEMMA = SMALL | {"model_type": "recurrent_gemma", "attention_window_size": 8, "lru_width": 128}
ZAMBA2 = SMALL | {
    "model_type": "zamba2",
    "layers_block_type": ["mamba", "mamba", "hybrid", "mamba"],
    "hybrid_layer_ids": [2],
    "mamba_d_state": 16,
    "mamba_headdim": 32,
    "n_mamba_heads": 8,
}
MINIMAX_M3 = SMALL | {
    "model_type": "minimax_m3_vl_text",
    "layer_types": ["full_attention"] * 2 + ["minimax_m3_sparse"] * 2,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "rotary_dim": 32,
    "index_head_dim": 32,
    "index_block_size": 128,
    "index_topk_blocks": 2,
    "index_local_blocks": 1,
}
MIXTRAL = SMALL | {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 2}
QWEN3_5 = SMALL | {"model_type": "qwen3_5_text", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
