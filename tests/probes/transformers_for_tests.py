"""The transformers engines over a config of a test's own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kaudit.cell import Cell
from kaudit.observation import Ran
from kaudit_probes.capture import Capture
from kaudit_probes.engines.transformers_given import VARIABLE
from kaudit_probes.engines.transformers_model import TransformersEngine
from kaudit_probes.observe import Observer

FULL = "prefill/bf16/kv-bf16/h4x2x32/contiguous/causal/neox/plain/b2q20k20"
SLIDING = FULL.replace("causal", "window8")

Tell = Callable[..., TransformersEngine]


def telling(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Makes the engine of a config, or of a text in a config's place."""
    pytest.importorskip("transformers")

    def tell(said: object, engine: type[TransformersEngine] = TransformersEngine) -> TransformersEngine:
        path = folder / "small.json"
        path.write_text(said if isinstance(said, str) else json.dumps(said))
        monkeypatch.setenv(VARIABLE, str(path))
        return engine("cpu")

    return tell


def layers(engine: TransformersEngine) -> list[str]:
    return engine.switches()["transformers.layers"].split("; ")


def rows(engine: TransformersEngine, *cells: str) -> dict[str, Ran]:
    observed = Observer(engine, Capture("cpu"), lambda _: None).observe([Cell.parse(cell) for cell in cells])
    assert observed.redo == {}
    found = {row.cell: row.outcome for row in observed.rows if isinstance(row.outcome, Ran)}
    assert found.keys() == set(cells), observed.rows
    return found
