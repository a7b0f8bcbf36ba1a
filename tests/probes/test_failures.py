"""What an exception comes to in a table, however it is made."""

import time

import msgspec
import pytest

from kaudit.observation import OUT_OF_MEMORY, Crashed
from kaudit.wire import Note
from kaudit_probes.__main__ import encoded
from kaudit_probes.failures import brief, crash, first_line, named, named_briefly, text_of


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unseen:
    def __repr__(self) -> str:
        raise Wordless


class Text(str):
    """Of a class whose methods do not keep to what a str does."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        raise Wordless

    __getitem__ = strip = splitlines = encode  # type: ignore[assignment]


class Worded(Exception):
    def __str__(self) -> str:
        return Text("half a \udc80 character at 0x7f00\nand more")


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (Wordless(), "Wordless"),
        (KeyError(Unseen()), "KeyError"),
        (Wordless(Wordless()), "Wordless"),
        (Worded(), "Worded: half a ? character at 0x…"),
        (ValueError(), "ValueError"),
        (ValueError("\n \n"), "ValueError"),
        (KeyError("q"), "KeyError: 'q'"),
    ],
)
def test_an_exception_is_its_type_and_the_first_line_of_what_it_can_say(error: Exception, how: str) -> None:
    assert crash(error) == Crashed(how)
    assert named(error) == how
    assert msgspec.json.decode(msgspec.json.encode(how)) == how


def test_a_line_that_ends_a_sweep_has_the_first_words_on_whichever_line_they_stand() -> None:
    assert named_briefly(ImportError("\n\nIMPORTANT: read this\n")) == "ImportError: IMPORTANT: read this"
    assert brief(ValueError("Validation error for field 'x':\n    TypeError: 'a' at 0x7f00")) == (
        "Validation error for field 'x': TypeError: 'a' at 0x…"
    )
    assert named_briefly(Wordless()) == "Wordless"
    assert brief(ValueError("x " * 1000)) == ("x " * 100).strip() + " "


def test_a_text_of_100_mb_costs_neither_time_nor_room() -> None:
    began = time.monotonic()
    assert first_line(ValueError("x" * 100_000_000)) == "x" * 1000
    assert len(text_of(ValueError("\n" * 100_000_000))) == 64 * 1024
    assert time.monotonic() - began < 2


def test_memory_that_ran_out_is_told_in_one_way() -> None:
    assert {crash(MemoryError()), crash(RuntimeError("CUDA error: out of memory"))} == {OUT_OF_MEMORY}


def test_an_engine_s_word_that_is_no_text_is_told_with_a_question_mark() -> None:
    assert encoded(Note("plain → text")) == msgspec.json.encode(Note("plain → text"))
    assert (
        msgspec.json.decode(encoded(Note("half \udc80, whole \U0001f600")), type=Note).text
        == "half ?, whole \U0001f600"
    )
