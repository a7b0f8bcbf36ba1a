"""Heads from a model: a preset shipped with kaudit, or a Hugging Face config.json; split over tensor-parallel ranks."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from kaudit.cell import Heads
from kaudit.hf_config import read_model


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
        near = get_close_matches(model, presets(), n=5, cutoff=0.5) or [*presets()][:5]
        raise ValueError(
            f'model "{model}" is no preset ({len(presets())} are, e.g. {", ".join(near)}); or name its config.json'
        ) from None


def from_config(path: Path) -> Heads:
    """The heads of a Hugging Face config.json; with latent attention (MLA), those of its expanded form.

    Raises ValueError, one line, where it does not say what the heads are, or where its layers have different ones.
    """
    groups = [group for group in read_model(path).groups if group.form != "absorbed"]
    heads = {str(group.heads): group.heads for group in groups}
    if len(heads) > 1:
        raise ValueError(f"{path}: layers have different heads; list {' and '.join(heads)} in its place")
    return groups[0].heads
