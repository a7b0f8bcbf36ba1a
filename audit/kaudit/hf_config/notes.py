"""What is true of a model's attention and stands in no cell: a line each."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kaudit.hf_config.facts import ASSUMED_LENGTH
from kaudit.hf_config.heads import absorbed, default_dim_note, heads_of
from kaudit.hf_config.layers import Layer, depth
from kaudit.hf_config.pattern import window_of
from kaudit.hf_config.source import Config, Source, listed, mapping, number, shown, whole


def notes_of(
    source: Source, layers: Sequence[Layer], of_layers: Mapping[str, int], max_len: int | None, typed: bool
) -> Iterator[str]:
    """`of_layers`: notes and how many layers they are true of; `max_len` None and `typed` False where unsaid."""
    config = source.text
    attending = sum(layer.sight is not None for layer in layers)
    others = Counter(layer.name for layer in layers if layer.sight is None and not layer.silent)
    for name, times in others.items():
        yield f"{times} of {len(layers)} layers: {name}"
    for note, times in of_layers.items():
        yield note if times == attending else f"{note} (in {times} of {attending} attention layers)"
    yield from _masks(config, layers, max_len)
    yield from _scores(config)
    yield from _cache(config)
    for name in source.others:
        yield f"{name}: that model's own attention"
    if depth(config) is None and len(layers) == 1:
        yield "the file has no num_hidden_layers: one layer stands for all"
    if max_len is None:
        yield f"the file has no max_position_embeddings: lengths up to {ASSUMED_LENGTH} assumed"
    if not typed:
        yield "the file has no dtype that cells know: bf16 assumed"
    dim = default_dim_note(config)
    if dim is not None:
        yield dim


def _masks(config: Config, layers: Sequence[Layer], max_len: int | None) -> Iterator[str]:
    chunk = whole(config, "attention_chunk_size")
    if chunk and any(layer.sight == "chunked" for layer in layers):
        yield f"attention in chunks of {chunk} tokens: written as causal, which the first chunk is"
    window = window_of(config)
    if window and max_len and window >= max_len and any(layer.sight == "sliding" for layer in layers):
        yield f"sliding_window={window} never binds within {max_len} positions: written as causal"
    if whole(config, "index_topk"):
        yield f"sparse attention to the {config['index_topk']} best keys of an indexer: written without it"
    compressing = sum(bool(ratio) for ratio in (listed(config, "compress_ratios") or ())[: len(layers)])
    if compressing:
        yield f"{compressing} of {len(layers)} layers see compressed keys beyond the window: written without them"
    if mapping(config, "sparse_attention_config").get("use_sparse_attention") is True:
        yield "sparse attention to the best blocks of keys: written as causal"
    if whole(config, "attention_sink_size"):
        yield f"the first {config['attention_sink_size']} keys stay in view beside the window"
    if config.get("use_bidirectional_attention"):
        yield f"use_bidirectional_attention={shown(config['use_bidirectional_attention'])}: written as causal"
    if config.get("use_logn_attn") is True:
        yield "logn scaling of queries beyond the trained length"


def _scores(config: Config) -> Iterator[str]:
    scale = number(config, "query_pre_attn_scalar")
    if scale is not None and scale != heads_of(config).dim:
        yield f"scores are scaled by 1/sqrt({scale:g}), not 1/sqrt(head_dim)"
    if absorbed(config):
        yield "MLA: K and V are one latent, which cells with absorbed heads hold twice; mixed batches run both forms"
    if config.get("attention_k_eq_v") is True:
        yield "V is K in the full layers"


def _cache(config: Config) -> Iterator[str]:
    quantised = mapping(config, "quantization_config", "quantization")
    if not quantised:
        return
    method = quantised.get("quant_algo") or quantised.get("format") or quantised.get("quant_method") or "some way"
    yield f"weights quantised ({shown(method)}): projections are no cells"
    algorithm = quantised.get("kv_cache_quant_algo")
    bits = mapping(quantised, "kv_cache_scheme").get("num_bits")
    if (algorithm not in (None, "FP8")) or bits not in (None, 8):
        yield f"KV cache quantised to {shown(algorithm or f'{bits} bits')}: no kv_dtype says it"
