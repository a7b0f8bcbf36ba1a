"""A user's own config.json in place of models made for each cell: the class it names, one layer of each type.

Random weights. Nothing is downloaded, and no code that comes with a model is run: a model_type that transformers does
not know is an error.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.hf_config import name_of
from kaudit.hf_config.source import read_config, shown
from kaudit_probes.engines.transformers_layers import Layer, Unusable, attention_layers
from kaudit_probes.failures import named_briefly

VARIABLE = "KAUDIT_CONFIG"
"""The environment variable that names the file. Not its path but what is in it goes into the stamp."""


@dataclass(frozen=True)
class Given:
    """`digest`: of what the file says, however it is written."""

    name: str
    digest: str
    layers: tuple[Layer, ...]
    others: tuple[str, ...]
    """Types of layers that no cell runs on: their attention, if it is one, is none of transformers' functions."""

    def switches(self) -> Mapping[str, str]:
        return {
            "transformers.config": f"{self.name} {self.digest}",
            "transformers.model": self.layers[0].model,
            "transformers.layers": "; ".join(map(str, self.layers)),
            "transformers.not_run": "; ".join(self.others) or "none",
        }

    def layer_of(self, cell: Cell) -> Layer | None:
        return next((layer for layer in self.layers if layer.attends_as(cell)), None)

    def unsupported(self, cell: Cell) -> str | None:
        layer = self.layer_of(cell)
        if layer is None:
            asked = f"{cell.heads}/{cell.mask}/{cell.rope}/{'+'.join(cell.features) or 'plain'}"
            return f"no layer of {self.name} is {asked}: {'; '.join(map(str, self.layers))}"
        if layer.fault:
            return f"{self.name}'s {layer.name} does not run in transformers: {layer.fault}"
        if cell.shape.kv_len > layer.most:
            limit = f"chunks of {layer.chunk}" if layer.most == layer.chunk else f"positions for {layer.most}"
            return f"kv_len={cell.shape.kv_len}, and {self.name}'s {layer.name} has {limit} tokens"
        return None


def given(device: str) -> Given | None:
    """What KAUDIT_CONFIG names, if it is set. Raises UserError, one line, where transformers makes no decoder of it."""
    named = os.environ.get(VARIABLE)
    return _read(Path(named), device) if named else None


def _read(path: Path, device: str) -> Given:
    try:
        said = read_config(path)
    except ValueError as error:
        raise UserError(f"{VARIABLE}: {error}") from None
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
    with _mendable(path):
        config = _text_config(said)
        layers, others = attention_layers(config, device)
        if not layers:
            raise Unusable(f"no layer of {type(config).__name__} attends by one of transformers' attention functions")
    return Given(shown(name_of(path)), digest, layers, others)


@contextmanager
def _mendable(path: Path) -> Iterator[None]:
    """A config is a stranger's: whatever transformers or torch throw over it, it is one line."""
    mend = "name another config.json, or another transformers by --python"
    try:
        yield
    except Unusable as error:
        raise UserError(f"{VARIABLE}: {path}: {error}; {mend}") from None
    except Exception as error:
        why = named_briefly(error)
        raise UserError(f"{VARIABLE}: {path}: transformers builds no model of it ({why}); {mend}") from None


def _text_config(said: Mapping[str, Any]) -> Any:
    """The config of the decoder of text, of the class that transformers has for it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = said.get("model_type")
    if not isinstance(kind, str):
        raise Unusable("it has no model_type")
    if kind not in CONFIG_MAPPING:
        raise Unusable(f'transformers knows no model_type "{shown(kind)}", and code that comes with a model is not run')
    config = CONFIG_MAPPING[kind].from_dict(_harmless(said)).get_text_config(decoder=True)
    if not hasattr(config, "to_dict") or getattr(config, "num_hidden_layers", None) is None:
        raise Unusable(f'transformers finds no decoder of text in model_type "{shown(kind)}"')
    if getattr(config, "is_encoder_decoder", False):
        raise Unusable(f'model_type "{shown(kind)}" is an encoder with a decoder, and only decoders are run')
    return config


def _harmless(said: Mapping[str, Any]) -> dict[str, Any]:
    """Without what would call for code or kernels from elsewhere, and without quantisation, which random weights have
    none of. What attention is asked for is the engine's: `transformers-eager`, `transformers-flash`."""
    return {
        key: _harmless(value) if isinstance(value, dict) else value
        for key, value in said.items()
        if not key.startswith("_") and not key.endswith("_implementation") and key not in _UNTAKEN
    }


_UNTAKEN = frozenset({"auto_map", "quantization_config"})
