"""A config.json as one flat mapping, and typed looks into it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kaudit.small_files import read_text

Config = Mapping[str, Any]

_TEXT_MODELS = ("text_config", "llm_config", "language_config", "language_model", "thinker_config")
_OTHER_MODELS = ("vision_config", "audio_config", "vit_config", "img_processor")
_INHERITED = ("model_type", "torch_dtype", "dtype", "quantization_config")
"""What a config with a nested text model says for both."""

_MOST = 1 << 40
"""More of anything than a model has."""


class Source(Struct, frozen=True):
    """The text model's config, flat; and the names of the other models beside it."""

    text: Config
    others: tuple[str, ...]


def name_of(path: Path) -> str:
    """Where all configs are called config.json, the folder tells models apart."""
    return path.absolute().parent.name if path.stem == "config" else path.stem


def read_config(path: Path) -> dict[str, Any]:
    """The file as it is. Raises ValueError, one line with the path, where it is no JSON object."""
    text = read_text(path)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}; name a Hugging Face config.json") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a JSON object; name a Hugging Face config.json")
    return config


def read_source(path: Path) -> Source:
    """Raises ValueError, one line with the path, where it is no JSON object."""
    config = read_config(path)
    others: list[str] = []
    while True:
        others += [name for name in _OTHER_MODELS if isinstance(config.get(name), dict)]
        inner = next((config[name] for name in _TEXT_MODELS if isinstance(config.get(name), dict)), None)
        if inner is None:
            break
        config = {key: config[key] for key in _INHERITED if key in config} | inner
    # DBRX and MPT keep their attention in a mapping of its own.
    nested = config.get("attn_config")
    return Source(nested | config if isinstance(nested, dict) else config, tuple(dict.fromkeys(others)))


def kind(config: Config) -> str:
    """The model_type, printable."""
    return shown(config.get("model_type") or "model")


def count(config: Config, *names: str) -> int:
    """A whole number of at least 1 under the first of the names that is there. Raises ValueError with one line."""
    name = next((name for name in names if name in config), None)
    if name is None:
        raise ValueError(f"no {names[0]}")
    value = config[name]
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {shown(value)}, not a count")
    return value


def number(config: Config, *names: str) -> float | None:
    """The first of the names that holds a number above 0 (JSON from Python has infinities, too), or None."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST:
            return value
    return None


def whole(config: Config, *names: str) -> int | None:
    """The first of the names that holds a whole number above 0, or None. 10**30, which is how some say "unlimited", is
    none."""
    held = (config.get(name) for name in names)
    return next((value for value in held if type(value) is int and 0 < value < _MOST), None)


def listed(config: Config, *names: str) -> list[Any] | None:
    """The first of the names that holds a list with something in it, or None."""
    return next((config[name] for name in names if isinstance(config.get(name), list) and config[name]), None)


def mapping(config: Config, *names: str) -> Config:
    """The first of the names that holds a mapping with something in it, or an empty one."""
    return next((config[name] for name in names if isinstance(config.get(name), dict) and config[name]), {})


def shown(value: object) -> str:
    """A value of a config for a line of text: printable, and not long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return "".join(character if character.isprintable() else "�" for character in text)[:40]
