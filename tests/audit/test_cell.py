import pytest
from hypothesis import given
from tables_for_tests import CELL, cells, outcomes, rans

from kaudit.cell import Cell, Heads
from kaudit.observation import Outcome, Ran, Unmet, is_fallback, is_silent_fallback

WITH_ALL = (
    "chunked_prefill/bf16/kv-fp8_e4m3/h8x8x64/paged16/window1024/neox+llama3@131071/sinks+softcap/b2q128k4096skew"
)


@given(cells)
def test_an_id_reads_back(text: str) -> None:
    cell = Cell.parse(text)
    assert cell.id == text
    assert Cell.parse(cell.id) == cell


@pytest.mark.parametrize(
    ("written", "id_"),
    [
        ("/neox/plain/", "/neox/plain/"),
        ("/neox/softcap+sinks/", "/neox/sinks+softcap/"),
        ("/neox@0/plain/", "/neox/plain/"),
        ("/neox+none/plain/", "/neox/plain/"),
    ],
)
def test_one_cell_has_one_id(written: str, id_: str) -> None:
    assert Cell.parse(CELL.replace("/neox/plain/", written)).id == CELL.replace("/neox/plain/", id_)


def test_equal_head_dims_are_written_once() -> None:
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
        ("plain", "sinks+sinks", "stands twice"),
        ("plain", "fast", 'feature "fast"'),
        ("b8q1k4096", "b8q1", 'shape "b8q1"'),
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
