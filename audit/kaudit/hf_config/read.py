"""A config.json to a Model."""

from collections.abc import Iterator
from pathlib import Path

from kaudit.cell import DType, Feature, KvDType, Mask
from kaudit.hf_config.facts import ASSUMED_LENGTH, NO_ATTENTION, NOT_CAUSAL, SINKS, SOFTCAP
from kaudit.hf_config.heads import absorbed, heads_of
from kaudit.hf_config.layers import Layer, layers_of
from kaudit.hf_config.model import Group, Model
from kaudit.hf_config.notes import notes_of
from kaudit.hf_config.pattern import window_of
from kaudit.hf_config.rope import rope_of
from kaudit.hf_config.source import Config, Source, count, kind, mapping, number, read_source, shown, whole

_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
    *("max_sequence_length", "model_max_length"),
)

_DTYPES: dict[str, DType] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def read_model(path: Path) -> Model:
    """Read a Hugging Face config.json. Raises ValueError, one line, where no attention can be read out of it.

    Text models nested under `text_config` and the like are followed.
    """
    source = read_source(path)
    try:
        return _model(source)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; name another config.json, or write heads as h<q>x<kv>x<dim>") from None


def _model(source: Source) -> Model:
    config = source.text
    if kind(config) in NOT_CAUSAL or config.get("is_encoder_decoder") is True:
        raise ValueError(f"{kind(config)} is an encoder or has one, and only decoders are read")
    if kind(config) in NO_ATTENTION:
        raise ValueError(f"{kind(config)} has no attention, and cells are attention")
    max_len = whole(config, *_LENGTHS) or ASSUMED_LENGTH
    layers = layers_of(config)
    groups: dict[Group, int] = {}
    notes: dict[str, int] = {}
    for layer in layers:
        for group, own_notes in _groups(config, layer, max_len):
            groups[group] = groups.get(group, 0) + 1
            notes.update((note, notes.get(note, 0) + 1) for note in own_notes if group.form != "absorbed")
    if not groups:
        what = ", ".join(sorted({layer.name for layer in layers if not layer.silent})) or "nothing of the kind"
        raise ValueError(f"{kind(config)} has no attention layers (they are: {what})")
    return Model(
        kind(config),
        tuple(Group(n, g.heads, g.mask, g.rope, g.features, g.most, g.form) for g, n in groups.items()),
        _DTYPES.get(_dtype(config), "bf16"),
        _kv_cache(config),
        max_len,
        tuple(notes_of(source, layers, notes, whole(config, *_LENGTHS), _dtype(config) in _DTYPES)),
    )


def _groups(config: Config, layer: Layer, max_len: int) -> Iterator[tuple[Group, tuple[str, ...]]]:
    """The groups, of one layer, that a layer makes, and notes on them; none for layers without attention."""
    if layer.sight is None:
        return
    own = _of_layer(config, layer)
    heads, latent = heads_of(own), absorbed(own)
    rope, notes = rope_of(own, layer, heads)
    features = tuple(_features(own, layer))
    mask, most = _mask(own, layer, max_len)
    yield Group(1, heads, mask, rope, features, most, "expanded" if latent else "plain"), notes
    if latent:
        yield Group(1, latent, mask, rope, features, most, "absorbed"), ()


def _of_layer(config: Config, layer: Layer) -> Config:
    """The config with the heads that its layers of this kind have as their own."""
    own: dict[str, str] = {}
    if layer.kv_heads is not None:
        return {**config, "num_key_value_heads": layer.kv_heads}
    if layer.sight == "full":  # Gemma 4
        own = {"global_head_dim": "head_dim", "num_global_key_value_heads": "num_key_value_heads"}
    if layer.sight == "sliding":  # MiMo-V2, Step-3.5
        own = {f"swa_{name}": name for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")}
        own["num_sliding_attention_heads"] = "num_attention_heads"
        config = {**config, **mapping(config, "attention_other_setting")}
    return {**config, **{name: config[key] for key, name in own.items() if config.get(key) is not None}}


def _mask(config: Config, layer: Layer, max_len: int) -> tuple[Mask, int]:
    """And the tokens up to which it is the model's: attention in chunks is causal in the first chunk."""
    if layer.sight == "chunked":
        return Mask("causal"), min(max_len, count(config, "attention_chunk_size"))
    window = layer.window or window_of(config)
    if layer.sight == "sliding" and window is None:
        raise ValueError("layers slide, and no sliding_window says how far")
    # A window as long as the sequence never binds.
    if layer.sight == "full" or window is None or window >= max_len:
        return Mask("causal"), max_len
    return Mask("window", window), max_len


def _features(config: Config, layer: Layer) -> Iterator[Feature]:
    local = layer.sight == "sliding"
    if kind(config) in SINKS or config.get(f"add_{'swa' if local else 'full'}_attention_sink_bias") is True:
        yield "sinks"
    softcap = "attn_logit_softcapping"
    if number(config, softcap, "attn_logit_softcap") or (softcap not in config and kind(config) in SOFTCAP):
        yield "softcap"


def _dtype(config: Config) -> str:
    return shown(config.get("dtype") or config.get("torch_dtype"))


def _kv_cache(config: Config) -> KvDType | None:
    """What the checkpoint's own scales quantise the cache to."""
    quantised = mapping(config, "quantization_config")
    scheme = mapping(quantised, "kv_cache_scheme")
    if quantised.get("kv_cache_quant_algo") == "FP8" or (scheme.get("num_bits"), scheme.get("type")) == (8, "float"):
        return "fp8_e4m3"
    return "int8" if (scheme.get("num_bits"), scheme.get("type")) == (8, "int") else None
