"""The layers of a user's config.json: which there are, cut out one by one, and those that no cell can run on."""

from pathlib import Path
from typing import Any

import pytest
from small_configs import BAMBA, GEMMA4, JAMBA, LLAMA, MINIMAX_M3, MISTRAL, MIXTRAL, RECURRENT_GEMMA, ZAMBA2
from transformers_for_tests import FULL, SLIDING, Tell, layers, rows, telling

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Skipped
from kaudit_probes.engines import transformers_layers


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """The engine, told of a config."""
    return telling(tmp_path, monkeypatch)


def has(model_type: str) -> None:
    """Skips under a transformers of before that model."""
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    if model_type not in auto.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")


def test_heads_of_their_own_in_the_full_layers(told: Tell) -> None:
    """Gemma 4 makes its last layer a full one, whatever its config says: of one layer, too."""
    has("gemma4_text")
    engine = told(GEMMA4)
    assert [layer.split("/neox")[0] for layer in layers(engine)] == [
        "sliding_attention h4x2x32/window8",
        "full_attention h4x2x64/causal",
    ]
    rows(engine, SLIDING, FULL.replace("x32/", "x64/"))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (JAMBA, "full_attention h4x2x32/causal/none/plain"),
        (BAMBA, "full_attention h4x2x32/causal/neox/plain"),
        (RECURRENT_GEMMA, "sliding_attention h4x2x32/window8/neox/plain"),
        (ZAMBA2, "hybrid h4x2x32/causal/neox/plain"),
    ],
)
def test_the_layer_that_attends_is_cut_out_of_those_that_do_not(config: Any, expected: str, told: Tell) -> None:
    """Its class places it by number or period, of which a model of one layer has others."""
    has(config["model_type"])
    engine = told(config)
    assert layers(engine) == [expected]
    cell = FULL.replace("causal/neox/plain", expected.split("/", 1)[1])
    assert rows(engine, cell)[cell].path


def test_a_layer_that_cannot_be_cut_out_is_kaudit_s_fault(told: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    has("jamba")
    monkeypatch.setattr(transformers_layers, "_ALONE", {})
    with pytest.raises(UserError, match="kaudit cannot cut JambaConfig to one layer of full_attention; name another"):
        told(JAMBA)


@pytest.mark.parametrize("first", ["full_attention", "minimax_m3_sparse"])
def test_a_sparse_layer_is_neither_merged_into_a_full_one_nor_causal(first: str, told: Tell) -> None:
    has("minimax_m3_vl_text")
    full, sparse = "full_attention h4x2x32/causal", "minimax_m3_sparse h4x2x32/a mask that no cell has"
    types = sorted(MINIMAX_M3["layer_types"], reverse=first == "minimax_m3_sparse")
    found = layers(told(MINIMAX_M3 | {"layer_types": types}))
    assert [layer.split("/neox")[0] for layer in found] == (
        [full, sparse] if types[0] == "full_attention" else [sparse, full]
    )
    none = told(MINIMAX_M3 | {"layer_types": ["minimax_m3_sparse"] * 4}).supports(Cell.parse(FULL))
    assert isinstance(none, Skipped)
    assert sparse in none.reason


@pytest.mark.parametrize(
    ("config", "own", "expected"),
    [
        (LLAMA, {"num_key_value_heads": 1}, ["h4x2x32/causal", "h4x1x32/causal"]),
        (LLAMA, {"intermediate_size": 2048}, ["h4x2x32/causal"]),
        (MISTRAL, {"sliding_window": 16}, ["h4x2x32/window8", "h4x2x32/window16"]),
    ],
)
def test_a_layer_with_values_of_its_own_is_another(config: Any, own: Any, expected: list[str], told: Tell) -> None:
    if not hasattr(pytest.importorskip("transformers").LlamaConfig, "per_layer_config"):
        pytest.skip("this transformers has no per_layer_config")
    engine = told(config | {"per_layer_config": {"2": own}})
    assert [layer.split()[1].split("/neox")[0] for layer in layers(engine)] == expected
    rows(engine, *(FULL.replace("h4x2x32/contiguous/causal", said.replace("/", "/contiguous/")) for said in expected))


def test_a_layer_that_does_not_run_to_its_end_is_skipped_in_words(told: Tell) -> None:
    engine = told(MIXTRAL | {"num_experts_per_tok": 3})
    (layer,) = layers(engine)
    assert layer.startswith("full_attention h4x2x32/causal/neox/plain that does not run (RuntimeError: ")
    found = engine.supports(Cell.parse(FULL))
    assert isinstance(found, Skipped)
    assert found.reason.startswith("small's full_attention does not run in transformers: RuntimeError: ")
