import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tables_for_tests import CELL, cells, outcomes, rans

from kaudit.cell import Cell, Heads, Rope, parse_features
from kaudit.observation import Outcome, Ran, Unmet, is_fallback, is_silent_fallback

WITH_ALL = (
    "chunked_prefill/bf16/kv-fp8_e4m3/h8x8x64/paged16/window1024/neox+llama3@131071/sinks+softcap/b2q128k4096skew"
)


@given(cells)
def test_an_id_reads_back(text: str) -> None:
    cell = Cell.parse(text)
    assert cell.id == text
    assert Cell.parse(cell.id) == cell


# Next to ids: tokens with one character replaced, added or lost, and digits of other scripts.
@st.composite
def spoilt(draw: st.DrawFn) -> str:
    text = draw(cells)
    place = draw(st.integers(0, len(text)))
    return text[:place] + draw(st.sampled_from("01٣x+@/k \n") | st.just("")) + text[place + draw(st.integers(0, 1)) :]


@given(st.text() | spoilt() | st.from_regex(r"[a-z]+/bf16/(kv-)?bf16/h[0-9x]+/paged[0-9]+/\w+/neox@[0-9]+/.*"))
@example(CELL.replace("b8", "b08"))
@example(CELL.replace("b8", "b٣"))
@example(CELL + "\n")
@example(CELL.replace("k4096", f"k{'9' * 5000}"))
def test_any_text_is_an_id_as_it_stands_or_none(text: str) -> None:
    try:
        cell = Cell.parse(text)
    except ValueError:
        return
    assert cell.id == text


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("/plain/", "/softcap+sinks/"),
        ("/neox/", "/neox@0/"),
        ("/neox/", "/neox+none/"),
        ("h32x8x128", "h32x8x128x128"),
        ("kv-bf16", "bf16"),
    ],
)
def test_one_cell_has_one_id(part: str, other: str) -> None:
    with pytest.raises(ValueError, match="is not as ids are spelled; write decode/bf16/kv-bf16/h32x8x128/paged16/"):
        Cell.parse(CELL.replace(part, other))


def test_a_matrix_may_spell_a_token_in_several_ways() -> None:
    assert parse_features("softcap+sinks") == parse_features("sinks+softcap")
    assert str(Rope.parse("neox+none@0")) == "neox"
    assert str(Heads.parse("h32x8x128x128")) == "h32x8x128"
    assert Heads.parse("h128x128x192x128").v_dim == 128


def test_axes_take_a_cell_apart() -> None:
    axes = Cell.parse(WITH_ALL).axes()
    expected = {"kv_dtype": "fp8_e4m3", "head_dim": 64, "page_size": 16, "window": 1024, "rope_offset": 131071}
    assert expected.items() <= axes.items()
    assert (axes["sinks"], axes["grammar"], axes["lengths"]) == ("yes", "no", "skewed")


@pytest.mark.parametrize(
    ("part", "wrong", "said"),
    [
        ("decode", "decoding", 'phase "decoding" is not one of prefill, chunked_prefill, decode, mixed'),
        ("h32x8x128", "h32x8", 'heads "h32x8" is not h<q>'),
        ("paged16", "paged0", 'kv_layout "paged0" is not contiguous'),
        ("paged16", "paged", 'kv_layout "paged"'),
        ("causal", "window", 'mask "window"'),
        ("neox", "none@5", "takes no scaling and no offset"),
        ("neox", "neox@007", 'rope "neox@007" is not neox'),
        ("plain", "sinks+sinks", "stands twice"),
        ("plain", "fast", 'feature "fast"'),
        ("b8q1k4096", "b8q1", 'shape "b8q1"'),
        ("b8q1k4096", "b0q1k4096", "with counts of at least 1"),
        ("b8q1k4096", "b8q01k4096", 'shape "b8q01k4096"'),
        ("b8q1k4096", "b8q1k٣", 'shape "b8q1k٣"'),
        ("/plain", "", "has 8 parts, needs phase/dtype/"),
    ],
)
def test_a_wrong_part_is_named(part: str, wrong: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        Cell.parse(CELL.replace(part, wrong))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@given(rans)
def test_a_silent_fallback_is_a_fallback(ran: Ran) -> None:
    paths = ("flash", "split")
    assert is_fallback(ran, paths) or not is_silent_fallback(ran, paths)
    assert is_fallback(ran, paths) == (ran.path != "flash")


@given(outcomes, outcomes)
def test_outcomes_are_values(one: Outcome, other: Outcome) -> None:
    assert (one == other) == (repr(one) == repr(other))
    assert one != other or hash(one) == hash(other)


def test_an_unmet_requirement_reads_as_one() -> None:
    assert str(Unmet("page_size", "8", "a multiple of 16")) == "page_size=8, needs a multiple of 16"
    assert str(Unmet("kv_len", "64", "at least 1024", worth=True)) == "kv_len=64, pays with at least 1024"
