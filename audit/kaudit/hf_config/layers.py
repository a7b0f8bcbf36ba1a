"""What each layer of a model is, out of the many ways in which configs say it."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from kaudit.hf_config.pattern import counted
from kaudit.hf_config.source import Config, count, listed, mapping, shown, whole

Sight = Literal["full", "sliding", "chunked"]

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")

MOST_LAYERS = 1000
"""Ten times those of the deepest model: a wrong number shall not fill the memory."""

_SIGHTS: dict[str, Sight] = {
    "attention": "full",
    "full_attention": "full",
    "global": "full",
    "deepseek_sparse_attention": "full",
    "indexed_attention": "full",
    "minimax_m3_sparse": "full",
    "hybrid": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "heavily_compressed_attention": "sliding",
    "compressed_sparse_attention": "sliding",
    "chunked_attention": "chunked",
}

_SILENT = frozenset({"mlp", "moe", "no-op"})
"""Layers with no attention that anyone could miss."""

_NEMOTRON = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


class Layer(Struct, frozen=True):
    """One layer: how far its queries see, or the name of what it does instead; its number in the model, from 0.

    `kv_heads` and `window` are the layer's own, where it has some.
    """

    number: int
    name: str
    kv_heads: int | None = None
    window: int | None = None

    @property
    def silent(self) -> bool:
        return self.name in _SILENT

    @property
    def sight(self) -> Sight | None:
        return next((sight for sight in get_args(Sight) if sight == self.name), None)


def layers_of(config: Config) -> tuple[Layer, ...]:
    """Raises ValueError, one line, where their number is none. Where it is left out, one layer of each kind will do."""
    layers = depth(config)
    blocks = listed(config, "block_configs")
    # Lists may go on with the layers that predict further tokens.
    found: Sequence[Any] = (blocks if blocks is not None else _names(config))[:layers]
    _check(len(found))
    if blocks is not None:
        return tuple(_block(config, number, block) for number, block in enumerate(found))
    return tuple(Layer(number, _SIGHTS.get(name, name)) for number, name in enumerate(found))


def depth(config: Config) -> int | None:
    """How many layers the model has, or None where the config does not say."""
    if all(config.get(name) is None for name in _LAYERS):
        return None
    layers = count(config, *_LAYERS)
    _check(layers)
    return layers


def _check(layers: int) -> None:
    if layers > MOST_LAYERS:
        raise ValueError(f"{layers} layers, and no model has more than {MOST_LAYERS}")


def _names(config: Config) -> list[str]:
    types = listed(config, "layer_types", "layers_block_type")
    if types is not None:
        return [shown(name) for name in types]
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return [_NEMOTRON.get(letter, shown(letter)) for letter in pattern]
    local = listed(config, "hybrid_layer_pattern")
    if local is not None:
        return ["sliding" if item else "full" for item in local]
    full = listed(config, "attn_type_list")
    if full is not None:
        return ["full" if item else "linear_attention" for item in full]
    return list(counted(config, depth(config)))


def _block(config: Config, number: int, block: Any) -> Layer:
    """One of the blocks that Nvidia's architecture search puts in place of a layer."""
    attention = mapping(block, "attention") if isinstance(block, dict) else {}
    if attention.get("no_op"):
        return Layer(number, "no-op")
    if attention.get("replace_with_linear"):
        return Layer(number, "linear")
    window = whole(attention, "window_length")
    kv_heads = count(config, "num_attention_heads") // count(attention, "n_heads_in_group")
    return Layer(number, "sliding" if window else "full", kv_heads, window)
