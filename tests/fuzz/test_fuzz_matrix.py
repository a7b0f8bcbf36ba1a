"""Matrix files: shipped ones with mistakes in them, ones made of words that a matrix may hold, and bombs."""

from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from runs import fuzzed, kaudit
from texts import YAML_BITS, in_a_file, mutated, values, words

SHIPPED = [
    (files("kaudit_matrices") / f"{name}.yaml").read_text("utf-8")
    for name in ("smoke", "sdpa", "flex", "torch_varlen", "transformers")
]

TOKENS: dict[str, list[object]] = {
    "phase": ["prefill", "chunked_prefill", "decode", "mixed"],
    "dtype": ["fp32", "fp16", "bf16", "fp8_e4m3"],
    "kv_dtype": ["same", "fp8_e4m3", "fp8_e5m2", "int8"],
    "heads": ["h8x8x64", "h32x8x128", "h128x1x576x512", {"model": "llama-3.1-8b", "tp": 2}, {"config": "config.json"}],
    "kv_layout": ["contiguous", "paged16", "paged7", "ragged"],
    "mask": ["none", "causal", "window1024", "custom", "tree"],
    "rope": ["none", "neox", "interleaved", "neox+yarn", "neox+llama3@131071"],
    "features": ["plain", "sinks", "softcap+sinks", "cuda_graph", "grammar", "prefix_share"],
    "shape": ["b1q128k128", "b8q1k4096skew", {"batch": 8, "q_len": 1, "kv_len": "page+1"}],
}


def _rarely(usual: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Mostly what is usual: a file with a mistake in each line is refused by the first of them."""
    return st.integers(0, 29).flatmap(lambda n: usual if n else values | st.sampled_from(YAML_BITS))


_axes = st.fixed_dictionaries(
    {}, optional={name: _rarely(st.lists(_rarely(st.sampled_from(own)), max_size=5)) for name, own in TOKENS.items()}
)
_patterns = st.one_of(words, st.sampled_from(["*", "bf16", "paged*", "[!p]*", "h8*", "1024", "yes"]))
_whens = st.dictionaries(
    st.sampled_from([*TOKENS, "head_dim", "page_size", "kv_len", "sinks", "window"]),
    _rarely(_patterns | st.lists(_patterns, max_size=3)),
    max_size=2,
)
_files = st.fixed_dictionaries(
    {"axes": _rarely(_axes)},
    optional={
        "name": _rarely(words),
        "cover": _rarely(st.sampled_from(["full", 2, 3])),
        "max_len": _rarely(st.integers(1, 10**9)),
        "forbid": _rarely(st.lists(_rarely(st.fixed_dictionaries({"when": _whens, "because": words})), max_size=2)),
        "expect": _rarely(st.lists(st.fixed_dictionaries({"when": _whens, "family": _rarely(words)}), max_size=2)),
        "also": _rarely(st.lists(st.fixed_dictionaries({"axes": _axes}, optional={"cover": st.just(2)}), max_size=2)),
    },
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


def expanded(path: Path, text: str) -> None:
    path.write_bytes(in_a_file(text))
    kaudit("matrix", path, "--max-cells", 3000)


@given(mutated(SHIPPED))
@fuzzed(30)
def test_shipped_ones_with_mistakes(folder: Path, text: str) -> None:
    expanded(folder / "m.yaml", text)


@given(_files, st.booleans())
@fuzzed(30)
def test_ones_made_of_a_matrix_s_words(folder: Path, document: object, flow: bool) -> None:
    expanded(folder / "m.yaml", yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True))


@given(st.lists(st.sampled_from(YAML_BITS) | words, max_size=12).map(" ".join))
@fuzzed(20)
def test_scraps_of_yaml(folder: Path, text: str) -> None:
    expanded(folder / "m.yaml", text)


def _many(form: str, start: int = 1) -> str:
    return "[" + ", ".join(form.format(number) for number in range(start, start + 450)) + "]"


LONG = {
    "kv_layout": _many("paged{}"),
    "mask": _many("window{}"),
    "shape": _many("{{batch: 1, q_len: 1, kv_len: {}}}"),
    "heads": _many("h8x8x{}"),
    "rope": _many("neox@{}"),
}
RULES = {
    "": "",
    "of lengths": "\nforbid: [{when: {kv_len: 7}, because: x}]",
    "of all": "\nforbid: [{when: {kv_len: 7, heads: h8x8x9, rope_offset: 3, page_size: 2, window: 2}, because: x}]",
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cover", ["full", "2"])
@pytest.mark.parametrize("count", [2, 5])
def test_long_axes(folder: Path, count: int, cover: str, rule: str) -> None:
    axes = "".join(f"\n  {name}: {own}" for name, own in list(LONG.items())[:count])
    expanded(folder / "m.yaml", f"cover: {cover}\naxes:\n  phase: [decode]{axes}{RULES[rule]}")


_LAUGHS = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
BOMBS = {
    "aliases": f"x0: &x0 lol\n{_LAUGHS}",
    "itself": "axes: &a {phase: *a}",
    "deep": "[" * 100_000,
    "deeper in time": "- " * 50_000,
    "long key": "? " + "k" * 900_000,
    "long number": "max_len: " + "9" * 500_000,
    "many lines": "\n" * 1_000_000,
    "many keys": "\n".join(f"k{n}: 1" for n in range(80_000)),
    "many quotes": "'" * 900_000,
    "many anchors": "\n".join(f"- &a{n} x" for n in range(49_000)),
    "large": " " * (2 << 20),
    "many blocks": "axes: {}\nalso:\n" + "- axes: {phase: [decode]}\n" * 8_000,
    "many rules": "axes: {}\nforbid:\n" + "- {when: {dtype: bf16}, because: x}\n" * 6_000,
    "many patterns": f"axes:\n  rope: {LONG['rope']}\nforbid: [{{when: {{rope: {_many('a{}*')}}}, because: x}}]",
    "wide product": "axes:" + "".join(f"\n  {name}: {own}" for name, own in LONG.items()),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(folder: Path, bomb: str) -> None:
    path = folder / "bomb.yaml"
    path.write_text(BOMBS[bomb], "utf-8")
    assert kaudit("matrix", path).code == 2
