"""Position encoding of a layer, as far as a cell's rope says it; the rest as notes."""

from kaudit.cell import Heads, Rope, RopeStyle, Scaling
from kaudit.hf_config.facts import INTERLEAVED, NO_ROPE, NO_ROPE_WHEN_FULL, ROTATED, UNSCALED_WHEN_LOCAL
from kaudit.hf_config.layers import Layer
from kaudit.hf_config.pattern import window_of
from kaudit.hf_config.source import Config, kind, listed, mapping, number, shown

_SCALINGS: dict[str, Scaling] = {"linear": "linear", "yarn": "yarn", "llama3": "llama3"}
_PLAIN = frozenset({"default", "gptj", "mrope"})


def rope_of(config: Config, layer: Layer, heads: Heads) -> tuple[Rope, tuple[str, ...]]:
    """The layer's rope, and what is true of it beyond."""
    if alibi(config):
        return Rope("none"), ("ALiBi biases",)
    if _without(config, layer):
        return Rope("none"), ()
    parameters = _parameters(config, layer)
    name = shown(parameters.get("rope_type") or parameters.get("type") or "default")
    scaled = not _unscaled(config, layer)
    notes = []
    if "mrope_section" in parameters:
        notes.append("mrope (positions in time, height and width): the rope is of text positions")
    if scaled and name not in _SCALINGS and name not in _PLAIN:
        notes.append(f"{name} rope scaling: written without scaling")
    if config.get("use_dynamic_ntk") is True:
        notes.append("dynamic NTK rope scaling: written without scaling")
    rotated = _rotated(config, parameters, heads)
    if rotated < heads.dim:
        notes.append(f"partial rotation: {rotated} of {heads.dim} elements of a head")
    return Rope(_style(config, name), _SCALINGS.get(name, "none") if scaled else "none"), tuple(notes)


def alibi(config: Config) -> bool:
    """Baichuan's two sizes differ in this, and no key says so."""
    said = config.get("alibi") is True or config.get("position_embedding_type") == "alibi"
    return said or kind(config) == "bloom" or (kind(config) == "baichuan" and number(config, "hidden_size") == 5120)


def _without(config: Config, layer: Layer) -> bool:
    if (kind(config) in NO_ROPE and config.get("rope") is not True) or config.get("mla_use_nope") is True:
        return True
    flags = listed(config, "no_rope_layers")  # 1 where there is one, whatever the name says
    if flags is not None:
        return layer.number < len(flags) and not flags[layer.number]
    if kind(config) not in NO_ROPE_WHEN_FULL or layer.sight != "full":
        return False
    return kind(config) != "exaone4" or window_of(config) is not None


def _unscaled(config: Config, layer: Layer) -> bool:
    ratios = listed(config, "compress_ratios")
    if ratios is not None:  # DeepSeek-V4 scales where it compresses
        return layer.number < len(ratios) and not ratios[layer.number]
    return layer.sight == "sliding" and kind(config) in UNSCALED_WHEN_LOCAL


def _parameters(config: Config, layer: Layer) -> Config:
    found = mapping(config, "rope_parameters", "rope_scaling")
    return mapping(found, f"{layer.sight}_attention", "main") or found


def _style(config: Config, name: str) -> RopeStyle:
    # DeepSeek-VL2's smallest models are Llama under the name of DeepSeek-V2.
    by_kind = kind(config) in INTERLEAVED and config.get("use_mla") is not False
    asked = config.get("rope_interleave") is True or config.get("rope_interleaved") is True
    return "interleaved" if by_kind or asked or name == "gptj" else "neox"


def _rotated(config: Config, parameters: Config, heads: Heads) -> int:
    """Elements of a head that are rotated."""
    own = number(config, "qk_rope_head_dim", "rotary_dim")
    if own is not None:
        return min(int(own), heads.dim)
    share = number(parameters, "partial_rotary_factor") or number(config, "partial_rotary_factor", "rotary_pct")
    return round(heads.dim * (share or ROTATED.get(kind(config), 1)))
