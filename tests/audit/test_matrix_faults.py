"""Faults of a matrix file: all at once, one line each, at their line and column; and never anything but a UserError."""

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kaudit.errors import UserError
from kaudit.matrix import load
from kaudit.strict_yaml.marks import MOST_DEPTH, read_yaml


def faults(folder: Path, text: str | bytes) -> list[str]:
    file = folder / "m.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        load(str(file))
    return [line.removeprefix(f"{file}:") for line in caught.value.faults]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("axes:\n  dtype: [bf17]", '2:11: dtype "bf17" is not one of fp32, fp16, bf16, fp8_e4m3; write one of them'),
        ("axes:\n  dtype: bf16", '2:10: dtype is "bf16", needs a list, as in [a, b]'),
        ("axes:\n  dtype: []", "2:10: dtype is an empty list, needs at least one entry"),
        ("axes:\n  dtype:", "2:9: dtype is empty, needs a list, as in [a, b]"),
        ("axes:\n  dtpye: [bf16]", '2:3: unknown key "dtpye"; did you mean "dtype"?'),
        (
            "axes: {}\nzzz: 1",
            '2:1: unknown key "zzz"; it may be: cover, axes, name, max_len, numerics, also, forbid, expect',
        ),
        ("axes: {}\naxes: {}", '2:1: key "axes" stands on line 1 already; write it once'),
        ("name: x", '1:1: "axes" is missing; add it'),
        ("", '1:1: "axes" is missing; add it'),
        ("# only a comment\n", '1:1: "axes" is missing; add it'),
        ("axes: {}\nalso:\n- {covr: 2, axes: {}}", '3:4: unknown key "covr"; did you mean "cover"?'),
        ("axes: {}\nforbid: [3]", "2:10: forbid is 3, needs a mapping, as in {key: value}"),
        ("axes:\n  mask: [*, causal]", "2:11: not YAML: while scanning an alias expected alphabetic"),
        ("- axes", "1:1: the file is a list, needs a mapping, as in {key: value}"),
        ("axes: {}\nname: 1.10", "2:7: name is 1.1, needs text; put it in quotes if text is meant"),
        ("axes: {}\ncover: 4", "2:8: cover 4 is not one of full, 2, 3; write one of them"),
        ("axes: {}\nmax_len: 0", "2:10: max_len is 0, needs at least 1"),
        ("axes:\n  mask: [causal, no]", '2:18: no without quotes is a truth value in YAML 1.1; write "no"'),
        ("axes:\n  on: [x]", '2:3: on without quotes is a truth value in YAML 1.1; write "on"'),
        (
            "axes: {}\nmax_len: 1:30",
            '2:10: 1:30 is no decimal number (YAML 1.1 has base 2, 8, 16, 60); write decimal, or "1:30" for text',
        ),
        (
            "axes: {}\nmax_len: 010",
            '2:10: 010 is no decimal number (YAML 1.1 has base 2, 8, 16, 60); write decimal, or "010" for text',
        ),
        ("axes: {}\nname: !foo x", '2:7: tag "!foo" has no meaning here; remove it'),
        ("axes: {}\nname: [", "2:8: not YAML: while parsing a flow node"),
        ("axes: {}\nname: \a", "2:7: not YAML: special characters are not allowed; remove the character"),
        ("axes: {}\n---\naxes: {}", "2:1: not YAML: expected a single document"),
        ('axes: {}\nname: "\\ud800"', "2:7: half a surrogate pair is no character; write the character"),
        ("axes:\n  heads: [h8x8]", '2:11: heads "h8x8" is not h<q>x<kv>x<dim>, as in h32x8x128'),
        ("axes:\n  heads: [h0x8x64]", '2:11: heads "h0x8x64" is not h<q>x<kv>x<dim>, as in h32x8x128'),
        ("axes:\n  heads: [8]", "2:11: 8 is not text; write a token as in a cell id"),
        ("axes:\n  heads:\n  - {model: llama}", '3:5: model "llama" is no preset ('),
        ("axes:\n  heads:\n  - {model: phi-2, tp: 3}", "3:5: tp=3 does not divide 32 query heads; write a divisor"),
        ("axes:\n  heads:\n  - {model: phi-2, pp: 3}", '3:20: unknown key "pp"; it may be: model, tp'),
        (
            "axes:\n  shape: [b0q1k1]",
            '2:11: shape "b0q1k1" is not b<batch>q<q_len>k<kv_len> with counts of at least 1,',
        ),
        ("axes:\n  shape:\n  - {batch: 1, q_len: pag, kv_len: 1}", '3:23: "pag" is not a number of tokens, nor page,'),
        ("axes:\n  shape:\n  - {batch: 1, q_len: true, kv_len: 1}", "3:23: True is not a number of tokens, nor page,"),
        ("axes:\n  shape:\n  - {batch: 1, q_len: 1, kv_len: kv_len}", "3:5: kv_len is given in terms of itself;"),
        ("axes:\n  shape:\n  - {batch: 1, q_len: 1}", '3:5: "kv_len" is missing; add it'),
        ("axes:\n  shape: {prefil: []}", '2:11: unknown key "prefil"; did you mean "prefill"?'),
        (
            "axes:\n  phase: [decode]\n  shape: {prefill: [b1q1k1]}",
            "3:10: shape has shapes for prefill, which phase",
        ),
        ("axes:\n  phase: [decode, mixed]\n  shape: {decode: [b1q1k1]}", "3:10: shape has no shapes for phase mixed;"),
        ("axes: {}\nforbid:\n- when: {phas: x}\n  because: y", '3:10: unknown axis "phas"; did you mean "phase"?'),
        (
            "axes: {}\nforbid:\n- when: {phase: x}\n  because: y",
            '3:17: phase "x" fits no value of this matrix (pre',
        ),
        ("axes: {}\nforbid:\n- when: {}\n  because: y", "3:9: when is an empty mapping, needs at least one entry"),
        ("axes: {}\nforbid:\n- when: {phase: prefill}", '3:3: "because" is missing; add it'),
        ("axes: {}\nforbid:\n- when: {phase: [1.5]}\n  because: y", "3:17: [1.5] is not a value or a list of values;"),
        ("axes: {}\nexpect:\n- when: {}", "3:3: the rule expects nothing; add path, family, refuses: true or most_lau"),
        ("axes: {}\nexpect:\n- {when: {}, path: a, family: b}", "3:3: path and family stand together; write one rule"),
        ("axes: {}\nexpect:\n- {when: {}, refuses: true, most_launches: 1}", "3:3: refuses and most_launches stand"),
        ("a: &a [*a]", "1:4: an alias holds itself; write the value out"),
        ("[" * 100_000, f"1:{MOST_DEPTH + 1}: nested more than {MOST_DEPTH} deep; write it flatter"),
        ("- " * 100_000, f"1:{2 * MOST_DEPTH + 1}: nested more than {MOST_DEPTH} deep; write it flatter"),
    ],
)
def test_a_fault_stands_at_its_place(tmp_path: Path, text: str, fault: str) -> None:
    found = faults(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_all_faults_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = faults(tmp_path, "covr: 2\naxes:\n  dtype: [bf17, no]\n  dtype: [bf16]\n  rope: [neo]\nforbid: [3]\n")
    assert [line.split(" ")[0] for line in found] == ["1:1:", "3:11:", "3:17:", "4:3:", "5:10:", "6:10:"]


def test_an_alias_bomb_is_a_fault(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    (fault,) = faults(tmp_path, "\n".join(lines))
    assert "with aliases followed; write fewer" in fault


def test_an_alias_may_share_a_list(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("axes:\n  phase: [prefill, decode]\n  shape: {prefill: &s [b1q8k8], decode: *s}\n")
    assert [choice.phases for choice in load(str(file)).axes.shape] == [("prefill", "decode")]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"axes: \xff", "not UTF-8 text (byte 6); save it as UTF-8"),
        ("axes: {}".encode("utf-16"), "not UTF-8 text (byte 0); save it as UTF-8"),
        (b"#" * ((1 << 20) + 1), "larger than 1 MiB; name another file"),
    ],
)
def test_no_text_to_read(tmp_path: Path, content: bytes, fault: str) -> None:
    assert faults(tmp_path, content) == [f" {fault}"]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (".", ".: Is a directory; name another file or a shipped matrix: "),
        ("smok", "smok: No such file or directory; name another file or a shipped matrix: "),
        ("none/m.yaml", "none/m.yaml: No such file or directory; name another file"),
        ("x" * 5000, f"{'x' * 5000}: File name too long; name another file or a shipped matrix: "),
    ],
)
def test_no_file_to_read(source: str, fault: str) -> None:
    with pytest.raises(UserError) as caught:
        load(source)
    (found,) = caught.value.faults
    assert found.startswith(fault)


NAMES = "name cover max_len axes forbid expect phase dtype heads shape when because path q_len tp"
KEYS = st.sampled_from(NAMES.split())
TOKENS = "full bf16 h8x8x64 h0x1x1 paged16 paged0 window8 neox+yarn@9 plain b1q1k8 page-1 decode same <model> [key]"
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(TOKENS.split()),
    st.from_regex(r"[hbqkx0-9*+@-]{1,12}"),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | LEAVES, inner, max_size=5)
)
FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def only_user_errors(folder: Path, text: str) -> None:
    file = folder / "m.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        load(str(file))
    except UserError as error:
        assert error.faults
        assert all("\n" not in line and line.startswith(f"{file}:") for line in error.faults)
        "\n".join(error.faults).encode()


@FUZZ
@given(st.dictionaries(KEYS, TREES, max_size=5) | TREES)
def test_any_data_is_a_matrix_or_a_user_error(tmp_path: Path, data: object) -> None:
    only_user_errors(tmp_path, yaml.dump(data, allow_unicode=True))


@FUZZ
@given(st.text(alphabet="ax:[]{}-&*!|>%@\"'\\#?,~ \n\t0158.noye\u2028\ud800", max_size=60))
@example('"\\UFFFFFFFF"')
@example("%YAML 1." + "9" * 5000 + "\n---\n1")
@example("axes: {heads: [h" + "9" * 5000 + "x1x1]}")
@example("axes: {shape: [{batch: 1, q_len: 1, kv_len: 9999999999*page}]}")
@example("? [a]\n: 1")
@example("=: <<")
def test_any_text_is_a_matrix_or_a_user_error(tmp_path: Path, text: str) -> None:
    only_user_errors(tmp_path, text)


def test_positions_survive_windows_line_ends_and_wide_characters() -> None:
    marked = read_yaml("name: 'ü漢'\r\naxes: {dtype: [a]}\r\n", "m")
    assert marked.places["axes", "dtype", 0] == (2, 16)
