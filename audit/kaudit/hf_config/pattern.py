"""Layers that are told apart by their numbers, and how far the local ones see."""

from collections.abc import Iterator

from kaudit.hf_config.facts import FULL_EVERY, LINEAR_BETWEEN, WINDOW_WHEN_ASKED
from kaudit.hf_config.source import Config, kind, listed, mapping, whole


def window_of(config: Config) -> int | None:
    """Keys in the sliding window, the query's own included, or None."""
    asked = config.get("use_sliding_window")
    if asked is False or (asked is None and kind(config).startswith(WINDOW_WHEN_ASKED) and not _by_name(config)):
        return None
    return whole(config, "sliding_window", "sliding_window_size")


def _by_name(config: Config) -> bool:
    return listed(config, "layer_types", "hybrid_layer_pattern") is not None


def counted(config: Config, layers: int | None) -> Iterator[str]:
    """What each layer is; where their number is None, one round of the pattern."""
    crossing = listed(config, "cross_attention_layers") or ()
    full = listed(mapping(config, "linear_attn_config"), "full_attn_layers")
    dense_every = whole(config, "dense_attention_every_n_layers")
    every = _full_every(config)
    cycle = every if isinstance(every, int) else len(every or "1")
    for number in range(layers or cycle):
        if number in crossing:
            yield "cross_attention"
        elif full is not None:
            yield "full" if number + 1 in full else "linear_attention"
        elif dense_every is not None:
            yield "blocksparse" if (number + 1) % dense_every else "full"
        elif isinstance(every, str):
            yield "full" if every[number % len(every)] == "G" else "sliding"
        elif every is not None:
            yield _between(config) if (number + 1) % every else "full"
        else:
            yield "sliding" if window_of(config) and number >= _first_sliding(config) else "full"


def _full_every(config: Config) -> int | str | None:
    """Every so manieth layer is full, or Exaone's letters for local and global, LLLG; None where all are alike."""
    letters = config.get("sliding_window_pattern")
    if isinstance(letters, str) and letters and set(letters) <= {"L", "G"}:
        return letters
    every = whole(config, "sliding_window_pattern", "full_attention_interval") or FULL_EVERY.get(kind(config))
    return every if every is not None and _between(config) != "full" else None


def _between(config: Config) -> str:
    if kind(config) in LINEAR_BETWEEN or whole(config, "full_attention_interval"):
        return "linear_attention"
    if whole(config, "attention_chunk_size"):
        return "chunked"
    return "sliding" if window_of(config) else "full"


def _first_sliding(config: Config) -> int:
    """Qwen's max_window_layers: that many layers from the bottom stay full. It means nothing unless asked for."""
    return whole(config, "max_window_layers") or 0 if config.get("use_sliding_window") is True else 0
