"""The layers of a config as transformers builds and calls them: what cells the attention of each is.

Heads, mask, softcap and sinks are not read off the config: one layer of each type runs over a few tokens, and what
reaches its attention function is looked at. A class may ignore a key, or change it.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from kaudit.cell import Cell, Feature, Heads, Mask, Rope
from kaudit.hf_config.layers import Layer as Numbered
from kaudit.hf_config.layers import Sight, layers_of
from kaudit.hf_config.rope import rope_of
from kaudit_probes.engines.transformers_attention import in_place_of
from kaudit_probes.failures import named_briefly

_TOKENS = 4
_FEW = 2
_NARROW = {
    "sliding_window": _FEW,
    "attention_chunk_size": _FEW,
    "index_topk": _FEW,
    "index_block_size": _FEW,
    "index_topk_blocks": 1,
    "index_local_blocks": 1,
}
"""Keys, or blocks of keys: windows, chunks and what an indexer chooses, so few that they show in a mask of _TOKENS."""

_MLP = 64
_EXPERT = 16  # the least whose rows are aligned as grouped products ask for
_SMALL = {
    "vocab_size": 256,
    "vocab_size_per_layer_input": 256,
    "intermediate_size": _MLP,
    "intermediate_size_mlp": _MLP,
    "moe_intermediate_size": _EXPERT,
    "moe_shared_expert_intermediate_size": _EXPERT,
    "shared_expert_intermediate_size": _EXPERT,
    "n_inner": _MLP,
    "ffn_dim": _MLP,
}
"""Sizes that attention does not look at. The experts stay as many as they are, for a class may group them."""

_ALONE = {
    "attn_layer_period": 1,
    "attn_layer_offset": 0,
    "attn_layer_indices": [0],
    "hybrid_layer_ids": [0],
    "block_types": ["attention"],
}
"""Keys that place attention among layers of other kinds by number, of a model whose only layer attends: Jamba, Bamba,
Zamba 2, RecurrentGemma."""

_UNLIMITED = 1 << 40


class Unusable(Exception):
    """What a config is that no cell can run on, in words that go on from its file's name."""


@dataclass(frozen=True)
class Layer:
    """A type of layer, and its attention in the words of cells; `mask` is None where no cell has the like.

    `config`: of one such layer, narrow where attention does not look. `model`: the class that is built of it.
    `cached`: heads and head dim of the two tensors that it caches: K and V, or with MLA the latent and what is rotated.
    `most`: tokens up to which the mask is the model's, and that it has positions for. `chunk`: keys that its queries
    are confined to, 0 where they are not. `fault`: what ends a run of the layer behind its attention, "" where nothing.
    """

    name: str
    config: Any
    model: str
    heads: Heads
    mask: Mask | None
    rope: Rope
    features: tuple[Feature, ...]
    cached: tuple[tuple[int, int], ...]
    most: int
    chunk: int = 0
    fault: str = ""

    def __str__(self) -> str:
        features = "+".join(self.features) or "plain"
        said = f"{self.name} {self.heads}/{self.mask or 'a mask that no cell has'}/{self.rope}/{features}"
        return f"{said} that does not run ({self.fault})" if self.fault else said

    def attends_as(self, cell: Cell) -> bool:
        its = self.heads, self.mask, self.rope, self.features
        return its == (cell.heads, cell.mask, cell.rope, cell.features)


def attention_layers(config: Any, device: str) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """One of each type that attends by transformers' attention functions, those that do not run last; and the names of
    the types that do not, but for mere MLPs. Raises Unusable, and what transformers raises of a config that it can
    build no model of."""
    as_read, types = config.to_dict(), _types(config)
    if types is not None:
        as_read["layer_types"] = types  # of Jamba and its like the class knows them, and no key
    kinds: dict[tuple[str, int | None, int | None, Rope, str], Numbered] = {}
    others: dict[str, None] = {}
    for layer in layers_of(as_read):
        # Sights are fewer than types: sparse layers of MiniMax M3 are full ones to from-config.
        name = types[layer.number] if types else layer.name
        if layer.sight is None and not layer.silent:
            others[name] = None
        elif layer.sight is not None:
            own = _own(as_read, layer.number)
            rope, _ = rope_of(as_read | own, layer, Heads(1, 1, 1, 1))
            spelled = json.dumps(own, sort_keys=True, default=str)
            kinds.setdefault((name, layer.kv_heads, layer.window, rope, spelled), layer)
    found: dict[str, Layer] = {}
    for (name, _, _, rope, _), layer in kinds.items():
        seen = _seen(config, layer, rope, device)
        if seen is None:
            others[name] = None
        else:
            found.setdefault(str(seen), seen)
    return tuple(sorted(found.values(), key=lambda layer: bool(layer.fault))), tuple(others)


def one_layer(config: Any, number: int, widths: Mapping[str, int] | None = None) -> Any:
    """The config of a model that has the layer of that number alone, with other `widths` where it has such."""
    as_read, layers, spelled = config.to_dict(), config.num_hidden_layers, config.attribute_map
    own = _own(as_read, number)
    values = {name: value for name, value in own.items() if name != "skip"}
    changes: dict[str, Any] = {"num_hidden_layers": 1}
    for name, value in as_read.items():
        if isinstance(value, list | tuple) and len(value) == layers:
            changes[name] = [value[number]]
    # The layer's own values are the model's, which has no other layer: classes refuse to look up what may differ.
    changes |= values
    as_read |= values
    for name, size in _SMALL.items():
        value = as_read.get(spelled.get(name, name))
        if isinstance(value, int) and value > size:
            changes[name] = size
        elif isinstance(value, list | tuple):
            changes[name] = [size]
    # Rows of the embedding, which now has fewer.
    tokens = (name for name in as_read if name.endswith("_token_id") and as_read[name] is not None)
    changes |= dict.fromkeys(tokens, 0)
    changes |= {name: value for name, value in _ALONE.items() if as_read.get(name) is not None}
    if as_read.get("num_kv_shared_layers"):
        changes["num_kv_shared_layers"] = 0  # the layer whose KV this one would share is gone
    kept = {name: as_read.get(spelled.get(name, name)) for name in _NARROW}
    changes |= {name: (widths or {}).get(name, value) for name, value in kept.items() if _is_width(value)}
    given = as_read | {spelled.get(name, name): value for name, value in changes.items()}
    if as_read.get("per_layer_config"):
        given["per_layer_config"] = {0: own | {name: given[spelled.get(name, name)] for name in values}} if own else {}
    cut = type(config).from_dict(deepcopy(given))
    # Once more: classes bend what they are made of. Gemma 4's last layer is made a full one, MiMo-V2's window grows.
    for name, value in changes.items():
        setattr(cut, name, value)
    types = _types(config)
    if types is not None and _types(cut) != [types[number]]:
        raise Unusable(f"kaudit cannot cut {type(config).__name__} to one layer of {types[number]}")
    return cut


def _types(config: Any) -> list[str] | None:
    """What the class makes of each layer, by the names that it has for them; None where it tells none apart."""
    for name in ("layer_types", "layers_block_type"):
        types = getattr(config, name, None)
        if types:
            return list(types)
    return None


def _own(as_read: Mapping[str, Any], number: int) -> dict[str, Any]:
    """What a layer has in place of the model's values, as far as its attention may look at it."""
    layers: Mapping[Any, dict[str, Any]] = as_read.get("per_layer_config") or {}
    for key, own in layers.items():
        if int(key) == number:
            sized = own.keys() & _SMALL.keys()
            return own | {name: min(own[name], _SMALL[name]) for name in sized if isinstance(own[name], int)}
    return {}


@dataclass(frozen=True)
class _Reached:
    """What came to the attention function: q, k, v [1, heads, _TOKENS, dim], the mask, the options; and what was cached
    by then. `fault`: what ended the run behind it."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    options: Mapping[str, Any]
    cached: tuple[Any, Any]
    fault: str = ""


def _seen(config: Any, layer: Numbered, rope: Rope, device: str) -> Layer | None:
    """None where the layer's attention is not by transformers' attention functions."""
    from transformers import AutoModel

    cut, types = one_layer(config, layer.number), _types(config)
    with torch.device(device):
        narrow = one_layer(config, layer.number, _NARROW)
        model = AutoModel.from_config(narrow, dtype=torch.bfloat16, attn_implementation="eager").eval()
    reached = _run(model, device)
    if reached is None:
        return None
    if reached.cached[0] is None:
        raise Unusable(f"{type(model).__name__} caches no K and V, and only decoders are run")
    heads = Heads(reached.q.shape[1], reached.k.shape[1], reached.q.shape[3], reached.v.shape[3])
    features: list[Feature] = []
    if reached.options.get("s_aux") is not None:
        features.append("sinks")
    if reached.options.get("softcap"):
        features.append("softcap")
    most = getattr(cut, "max_position_embeddings", None) or _UNLIMITED
    sees = _sees(cut, reached.mask)
    name = types[layer.number] if types else f"{sees}_attention"
    mask, chunk = None, 0
    match sees:
        # Of a layer that is local by name and sees all, nobody knows the width: it is not where it is looked for.
        case "full" if types is None or layer.sight == "full":
            mask = Mask("causal")
        # A window as long as the sequence never binds, and from-config writes causal.
        case "sliding":
            mask = Mask("window", cut.sliding_window) if cut.sliding_window < most else Mask("causal")
        case "chunked":
            mask, chunk = Mask("causal"), cut.attention_chunk_size
    return Layer(
        name,
        cut,
        type(model).__name__,
        heads,
        mask,
        rope,
        tuple(features),
        tuple((tensor.shape[1], tensor.shape[3]) for tensor in reached.cached),
        min(most, chunk or most),
        chunk,
        reached.fault,
    )


def _run(model: Any, device: str) -> _Reached | None:
    """Raises Unusable where the run ends before it comes to attention."""
    from transformers import DynamicCache

    found: list[_Reached] = []

    def attention(_: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *__: Any, **options: Any) -> Any:
        found.append(_Reached(q, k, v, mask, options, (cache.layers[0].keys, cache.layers[0].values)))
        # The layer runs on, for one that cannot is no layer to send cells to; no path is tried out for that.
        return q.new_zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[3]), None

    cache = DynamicCache(config=model.config)
    tokens = torch.ones(1, _TOKENS, dtype=torch.long, device=device)
    try:
        with in_place_of("eager", attention), torch.no_grad():
            model(tokens, past_key_values=cache, use_cache=True)
    except Exception as error:
        fault = named_briefly(error)
        if not found:
            raise Unusable(f"a layer of {type(model).__name__} does not run ({fault})") from None
        return replace(found[0], fault=fault)
    return found[0] if found else None


def _is_width(value: object) -> bool:
    """Some say 0 for none."""
    return type(value) is int and value > 0


def _sees(config: Any, mask: Tensor | None) -> Sight | Literal["other"]:
    """What a mask over _TOKENS looks like with every width narrowed to _FEW says which width it is made by."""
    if mask is None:
        return "other"
    visible = (mask if mask.dtype == torch.bool else mask == 0)[0, 0].cpu()
    query, key = torch.arange(_TOKENS)[:, None], torch.arange(_TOKENS)
    causal = key <= query
    if torch.equal(visible, causal):
        return "full"
    sliding = _is_width(getattr(config, "sliding_window", None))
    if sliding and torch.equal(visible, causal & (query - key < _FEW)):
        return "sliding"
    chunked = _is_width(getattr(config, "attention_chunk_size", None))
    if chunked and torch.equal(visible, causal & (query // _FEW == key // _FEW)):
        return "chunked"
    return "other"
