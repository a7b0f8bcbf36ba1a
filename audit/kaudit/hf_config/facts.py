"""What the code of a model says and its config.json leaves out, by model_type.

Read off transformers 5.17 (the defaults of its configuration classes, and how its modelling files rotate and mask) and,
for models with code of their own, vLLM's.
"""

HEAD_DIM = {
    "deepseek_v4": 512,
    "gemma": 256,
    "gemma2": 256,
    "gemma3_text": 256,
    "gemma3n_text": 256,
    "gpt_oss": 64,
    "llama4_text": 128,
    "nemotron_h": 128,
    "qwen3": 128,
    "qwen3_5_moe_text": 256,
    "qwen3_5_text": 256,
    "qwen3_next": 256,
    "step3p7": 128,
}
"""Of the configuration class, where that is not hidden_size over heads."""

FULL_EVERY = {
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3_text": 6,
    "gemma3n_text": 5,
    "gpt_oss": 2,
    "llama4_text": 4,
    "olmo3": 4,
    "qwen3_5_moe_text": 4,
    "qwen3_5_text": 4,
    "qwen3_next": 4,
}
"""Every so manieth layer is full attention, where the config lists no layers."""

LINEAR_BETWEEN = frozenset({"qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"})
"""The layers between the full ones are linear attention, not sliding windows."""

WINDOW_WHEN_ASKED = ("qwen2", "qwen3", "smollm3", "mimo")
"""Beginnings of model types whose sliding_window counts only with use_sliding_window: true."""

NO_ROPE_WHEN_FULL = frozenset({"cohere2", "exaone4", "llama4_text"})
"""Rotary embeddings in the local layers alone; exaone4 has them everywhere without a window."""

UNSCALED_WHEN_LOCAL = frozenset({"gemma3_text", "olmo3"})
"""rope_scaling is for the full layers; the sliding ones rotate plainly."""

INTERLEAVED = frozenset(
    {"chatglm", "codegen", "cohere", "cohere2", "cohere2_moe", "deepseek_ref", "deepseek_v2", "deepseek_v3"}
    | {"deepseek_v32", "deepseek_v4", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "glm4_moe_lite", "glm_moe_dsa"}
    | {"gptj", "helium", "kimi_k2", "llama4_text", "longcat_flash", "mistral4"}
)
"""Rotate neighbouring elements, where others rotate halves."""

ROTATED = {
    "bamba": 0.5,
    "chatglm": 0.5,
    "glm": 0.5,
    "glm4": 0.5,
    "glm4_moe": 0.5,
    "qwen3_5_moe_text": 0.25,
    "qwen3_5_text": 0.25,
    "qwen3_next": 0.25,
}
"""Share of a head's elements that is rotated, where no key says so."""

NO_ROPE = frozenset({"biogpt", "bloom", "gpt2", "gpt_bigcode", "gpt_neo", "jamba", "mpt", "nemotron_h", "opt", "xglm"})
"""Learned positions, ALiBi, or none: the keys rope_theta and the like in their configs are left over."""

SINKS = frozenset({"deepseek_ref", "deepseek_v4", "gpt_oss"})

SOFTCAP = frozenset({"gemma2"})
"""Softcap on where the config has no attn_logit_softcapping."""

NOT_CAUSAL = frozenset(
    {"albert", "bert", "clip", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "roberta", "siglip"}
    | {"t5", "mt5", "umt5", "bart", "mbart", "pegasus", "whisper", "vit", "xlm-roberta"}
)
"""Encoders, and encoders with a decoder."""

NO_ATTENTION = frozenset({"falcon_mamba", "mamba", "mamba2", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm"})

ASSUMED_LENGTH = 8192
"""Tokens, where a config has no limit."""
