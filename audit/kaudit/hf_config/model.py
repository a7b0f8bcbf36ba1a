"""A model as cells can tell it: groups of layers that look alike to a dispatcher, and notes on the rest."""

from typing import Literal

from msgspec import Struct

from kaudit.cell import DType, Feature, Heads, KvDType, Mask, Rope

Form = Literal["plain", "expanded", "absorbed"]
"""Latent attention (MLA) has two forms: prefill expands the latent to full heads, decode attends over the latent."""


class Group(Struct, frozen=True):
    """Layers whose attention is one and the same to a dispatcher; with MLA, the same layers stand in two groups.

    `most`: tokens up to which the group's mask says what the model computes.
    """

    layers: int
    heads: Heads
    mask: Mask
    rope: Rope
    features: tuple[Feature, ...]
    most: int
    form: Form = "plain"


class Model(Struct, frozen=True):
    """`kind` is its model_type; `kv_cache` the quantised type that the checkpoint names for its KV cache, if any.

    `notes`: what is true of the model and stands in no cell, a line each.
    """

    kind: str
    groups: tuple[Group, ...]
    dtype: DType
    kv_cache: KvDType | None
    max_len: int
    notes: tuple[str, ...]
