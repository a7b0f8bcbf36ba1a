import sys
import time
from collections.abc import Callable

import pytest

from kaudit import asking
from kaudit.asking import ask
from kaudit.catalogue import catalogue
from kaudit.doctor import examine
from kaudit.engines import installed
from kaudit.errors import UserError
from kaudit.gpus import chosen
from processes import alive

ASKED: dict[str, Callable[[str], object]] = {
    "engines": installed,
    "doctor": lambda python: examine(python, "cpu"),
    "gpus": lambda python: chosen("all", python),
    "catalogue": lambda python: catalogue(python, "reference", "cpu", None, None),
}


def test_each_listed_engine_says_what_is_installed_or_how_to_get_it() -> None:
    lines = list(installed(sys.executable))
    assert any(line.startswith("reference ") and " torch 2." in line for line in lines)
    assert all("not installed: pip install " in line for line in lines if "not installed" in line)


@pytest.mark.parametrize(
    ("python", "fault"),
    [
        ("/nowhere/python", "No such file or directory"),
        ("/bin", "Permission denied"),
        ("/bin/false", "exit 1"),
        ("/bin/true", "it printed nothing"),
        ("/bin/echo", "it printed something else"),
    ],
)
def test_what_is_no_python_with_kaudit_is_one_line(python: str, fault: str) -> None:
    with pytest.raises(UserError) as error:
        installed(python)
    (line,) = error.value.faults
    assert line.startswith(f"--python {python}: cannot list its engines: ")
    assert fault in line
    assert line.endswith("; name a Python that has kaudit")
    assert "\n" not in line


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("exec yes", "printed more than 1 MiB"),
        ("exec yes >&2", "printed more than 2 MiB: y"),
        ("head -c 200000 /dev/zero | tr '\\0' '['", "it printed something else"),
        ("echo broken >&2; kill -SEGV $$", "SIGSEGV: broken"),
    ],
    ids=["flood", "flood of words", "nested", "dead"],
)
def test_whoever_asks_a_python_it_is_told_in_one_line(
    asked: str, script: str, fault: str, python: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_PRINTED", 2 << 20)
    with pytest.raises(UserError) as error:
        ASKED[asked](python(script))
    (line,) = error.value.faults
    assert line.startswith(f"--python {python(script)}: cannot ")
    assert f": {fault}; " in line
    assert line.endswith("name a Python that has kaudit")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("script", "text", "trouble"),
    [
        ("echo first; exec sleep 60", b"first\n", "no end after 0.4 s"),
        ("exec sleep 60 >&-", b"", "no end after 0.4 s"),
        ("sleep 60 & echo $!", None, ""),  # what it leaves behind holds its pipe
        ("sleep 60 & echo $!; exec yes >&2", None, "no end after 0.4 s"),
        ("echo first; exit 3", b"first\n", "exit 3"),
    ],
)
def test_what_is_asked_ends_in_time_with_all_that_it_started(
    script: str, text: bytes | None, trouble: str, python: Callable[[str], str]
) -> None:
    began = time.monotonic()
    printed = ask(python(script), "answer", "any.module", limit=0.4)
    assert printed.trouble == trouble
    if text is not None:
        assert printed.text == text
    else:
        while alive(int(printed.text)):  # a signal takes its time
            assert time.monotonic() - began < 5
            time.sleep(0.01)
