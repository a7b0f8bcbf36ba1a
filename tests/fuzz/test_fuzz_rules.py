"""Policies, waivers and configs of models: files that a user writes or downloads, with mistakes and malice in them."""

import json
from pathlib import Path
from typing import Any

import configs_for_tests
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import fuzzed, kaudit
from texts import YAML_BITS, in_a_file, mutated, with_changes, words

TABLE = Path(__file__).parents[1] / "golden" / "torch-varlen-h200.jsonl"

POLICIES = [
    """\
fail_on: [silent_fallback, crashed]
rules:
  - cells: "decode/*"
    op: attention
    fail_on: [silent_fallback, crashed, relaunched]
    because: decode is what we sell
""",
    "fail_on: []\n",
]
WAIVERS = [
    """\
- cells: "*/h8x8x64/*"
  kind: silent_fallback
  because: the kernel for head_dim 64 lands in 2.4
  expires: 2026-12-31
- {cells: "*", op: attention, kind: crashed, because: x, expires: "2026-01-01"}
""",
]
CONFIGS = [value for value in vars(configs_for_tests).values() if isinstance(value, dict) and "model_type" in value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


_scraps = st.lists(st.sampled_from(YAML_BITS) | words, max_size=8).map(" ".join)


@given(mutated(POLICIES) | _scraps)
@fuzzed(30)
def test_policies(folder: Path, text: str) -> None:
    (folder / "p.yaml").write_bytes(in_a_file(text))
    kaudit("gate", TABLE, TABLE, "--policy", folder / "p.yaml")


@given(mutated(WAIVERS) | _scraps)
@fuzzed(30)
def test_waivers(folder: Path, text: str) -> None:
    (folder / "w.yaml").write_bytes(in_a_file(text))
    kaudit("gate", TABLE, TABLE, "--waivers", folder / "w.yaml")


@given(st.sampled_from(CONFIGS).flatmap(with_changes), st.sampled_from(["1", "1,2,4", "3", "999999999999"]))
@fuzzed(40)
def test_configs_and_the_matrices_made_of_them(folder: Path, config: Any, tp: str) -> None:
    (folder / "config.json").write_bytes(in_a_file(json.dumps(config)))
    made_and_read(folder, "--tp", tp)


def made_and_read(folder: Path, *flags: str) -> None:
    """A matrix that was made of a config can be read."""
    made = kaudit("matrix", "from-config", folder / "config.json", *flags, "--out", folder / "m.yaml")
    if made.code == 0:
        assert kaudit("matrix", folder / "m.yaml").code == 0


@given(st.binary(max_size=40) | words.map(in_a_file))
@fuzzed(20)
def test_configs_that_are_none(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    assert kaudit("matrix", "from-config", folder / "config.json").code == 2


HUGE = {
    "layers": {"num_hidden_layers": 10**9},
    "layer types": {"layer_types": ["full_attention"] * 200_000, "num_hidden_layers": 200_000},
    "heads": {"num_attention_heads": 10**18, "num_key_value_heads": 10**17},
    "length": {"max_position_embeddings": 10**30},
    "length that no matrix can say": {"max_position_embeddings": 10**18},
    "pattern": {"sliding_window": 4096, "sliding_window_pattern": 10**12, "num_hidden_layers": 10**12},
}


@pytest.mark.parametrize("what", HUGE)
def test_configs_of_huge_numbers(folder: Path, what: str) -> None:
    for config in CONFIGS:
        (folder / "config.json").write_text(json.dumps(config | HUGE[what]))
        made_and_read(folder)


def test_json_that_is_too_deep_or_too_long(folder: Path) -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"num_attention_heads": ' + "9" * 100_000 + "}"):
        (folder / "config.json").write_text(text)
        assert kaudit("matrix", "from-config", folder / "config.json").code == 2
