"""Configs of one-layer models of transformers with a cell's heads: the model class that has what the cell asks for.

Narrow where attention does not look: vocabulary, MLP, experts. Random weights, nothing is downloaded.
"""

from typing import Any

from kaudit.cell import Cell
from kaudit_probes.engines.batches import SOFTCAP

_VOCABULARY = 256
_MLP = 256


def config_of(cell: Cell) -> Any:
    """Llama; Mistral for a window; Gemma 2 for a softcap; gpt-oss, which alone has them, for sinks."""
    from transformers import Gemma2Config, GptOssConfig, LlamaConfig, MistralConfig

    heads, window = cell.heads, cell.mask.window or None
    shared = {
        "hidden_size": heads.q * heads.dim,
        "num_attention_heads": heads.q,
        "num_key_value_heads": heads.kv,
        "head_dim": heads.dim,
        "num_hidden_layers": 1,
        "vocab_size": _VOCABULARY,
        "intermediate_size": _MLP,
        "max_position_embeddings": 131072,
        "pad_token_id": 0,
    }
    layer = {"layer_types": ["sliding_attention" if window else "full_attention"], "sliding_window": window or 4096}
    match cell.features:
        case ("softcap",):
            return Gemma2Config(**shared, **layer, attn_logit_softcapping=SOFTCAP, query_pre_attn_scalar=heads.dim)
        case ("sinks",):
            return GptOssConfig(**shared, **layer, num_local_experts=2, num_experts_per_tok=1)
    return MistralConfig(**shared, sliding_window=window) if window else LlamaConfig(**shared)


MODELS = "LlamaModel; MistralModel with a window; Gemma2Model with a softcap; GptOssModel with sinks"
"""What config_of() comes to, for the stamp."""


def beyond_any(cell: Cell) -> str | None:
    """What of a cell no model of transformers can be given by this adapter."""
    if cell.dtype == "fp8_e4m3" or cell.kv_dtype != cell.dtype:
        return "this adapter runs transformers' models in one dtype, with a cache of the same"
    if cell.layout.kind != "contiguous":
        return f"transformers' DynamicCache is contiguous, not {cell.layout}"
    if cell.phase == "mixed":
        return "transformers gives every row of a batch the same number of new tokens"
    return None


def unsupported(cell: Cell) -> str | None:
    """What of a cell no model of config_of() can be given."""
    if cell.features not in ((), ("softcap",), ("sinks",)):
        return f"no model here has {'+'.join(cell.features)}: Llama, Mistral, Gemma 2 (softcap) or gpt-oss (sinks)"
    if cell.heads.v_dim != cell.heads.dim:
        return "Llama, Mistral, Gemma 2 and gpt-oss have one head_dim for K and V"
    if cell.mask.kind not in ("causal", "window"):
        return "these models are causal decoders, with a sliding window or without"
    if cell.rope.style != "neox" or cell.rope.scaling != "none" or cell.rope.offset:
        return "these models rotate as neox, and this adapter neither scales nor offsets it"
    return None
