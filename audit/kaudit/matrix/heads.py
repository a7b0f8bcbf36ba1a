"""Heads from a model: a preset shipped with kaudit, or a Hugging Face config.json; split over tensor-parallel ranks."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from kaudit.cell import Heads
from kaudit.strict_yaml.text import read_text

_KV_NAMES = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
_DIM_NAMES = ("head_dim", "attention_head_dim", "kv_channels")


def split(heads: Heads, tp: int) -> Heads:
    """The heads of one of `tp` ranks; KV heads are replicated where there are fewer of them than ranks."""
    if heads.q % tp:
        raise ValueError(f"tp={tp} does not divide {heads.q} query heads; write a divisor")
    if heads.kv % tp and tp % heads.kv:
        raise ValueError(f"tp={tp} neither divides {heads.kv} KV heads nor is a multiple; write a divisor")
    return Heads(heads.q // tp, max(1, heads.kv // tp), heads.dim, heads.v_dim)


@cache
def presets() -> Mapping[str, Heads]:
    """The shipped models by name."""
    folder = files("kaudit_matrices") / "models"
    found = {item.name.removesuffix(".yaml"): item for item in folder.iterdir() if item.name.endswith(".yaml")}
    return {name: Heads.parse(yaml.safe_load(found[name].read_text("utf-8"))["heads"]) for name in sorted(found)}


def from_preset(model: str) -> Heads:
    try:
        return presets()[model]
    except KeyError:
        raise ValueError(f'model "{model}" is not one of {", ".join(presets())}; or name its config.json') from None


def from_config(path: Path) -> Heads:
    """Read a Hugging Face config.json. Raises ValueError, one line, where it does not say what the heads are.

    Text models nested under `text_config` are followed. KV heads left out mean multi-head attention, unless one of the
    older names says otherwise. With latent attention (MLA), heads are those of its prefill form, after expansion.
    """
    text = read_text(path)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}; name a Hugging Face config.json") from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        config = config["text_config"]
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a JSON object; name a Hugging Face config.json")
    try:
        return _heads(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; write the heads as h<q>x<kv>x<dim>") from None


def _heads(config: dict[str, Any]) -> Heads:
    q = _count(config, "num_attention_heads")
    kv = _kv_heads(config, q)
    if "qk_nope_head_dim" in config and "qk_rope_head_dim" in config:
        dim = _count(config, "qk_nope_head_dim") + _count(config, "qk_rope_head_dim")
        return Heads(q, kv, dim, _count(config, "v_head_dim"))
    name = next((name for name in _DIM_NAMES if config.get(name) is not None), None)
    dim = _count(config, name) if name else _count(config, "hidden_size") // q
    if name is None and config["hidden_size"] % q:
        raise ValueError(f"no head_dim, and hidden_size={config['hidden_size']} is not a multiple of {q} heads")
    return Heads(q, kv, dim, _count(config, "v_head_dim") if config.get("v_head_dim") is not None else dim)


def _kv_heads(config: dict[str, Any], q: int) -> int:
    """A null is no absence: models whose layers differ have it, and this then is no one number to read."""
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    name = next((name for name in _KV_NAMES if name in config), None)
    return q if name is None else _count(config, name)


def _count(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {json.dumps(value)[:40]}, not a count" if name in config else f"no {name}")
    return value
