import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kaudit import asking, engines
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
    assert any(re.fullmatch(r"reference +torch 2\.\S+: importable", line) for line in lines)
    assert all(re.search(r"pip install \S", line) for line in lines if not line.endswith(": importable"))


def listing(*names: str) -> str:
    """A script that lists engines, of packages by their first letters, and goes on where it is to try some."""
    rows = [{"name": name, "package": f"p{name[0]}", "version": "1", "get": f"get {name}"} for name in names]
    rows.append({"name": "absent", "package": "absent", "version": "", "get": "get absent"})
    echoes = "\n".join(f"  echo '{json.dumps(row)}'" for row in rows)
    told = 'told() { echo "{\\"name\\":\\"$1\\",\\"trouble\\":\\"$2\\"}"; }'
    return f"shift 3\nif [ $# = 0 ]; then\n{echoes}\n  exit\nfi\n{told}\n"


def died(how: str) -> str:
    return f"does not import ({how}); get b1, where --python points"


@pytest.mark.parametrize(
    ("b1", "state"),
    [
        ("told b1; told b2", "importable"),
        ("told b1 'lacks libc'", "lacks libc"),
        ("echo sad >&2; exit 3", died("exit 3: sad")),
        ("exit 0", died("exit 0: it printed nothing")),
        ("kill -SEGV $$", died("SIGSEGV: it printed nothing")),
        ("echo hello", died("it printed something else")),
        ("told another; told a1 'lies'", died("it printed something else")),
        ("exec sleep 60", died("no end after 1 s: it printed nothing")),
    ],
)
def test_each_installed_engine_is_tried_whatever_the_import_of_another_does(
    b1: str, state: str, python: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """b1 and b2 are of one package: where b1 fails, b2 is tried alone."""
    if "sleep" in b1:
        monkeypatch.setattr(engines, "LIMIT", 1.0)
    script = listing("a1", "b1", "b2") + f"case $1 in b1) {b1};; *) told $1;; esac"
    states = dict(line.split(maxsplit=1) for line in installed(python(script)))
    assert states == {
        "a1": "pa 1: importable",
        "b1": f"pb 1: {state}",
        "b2": "pb 1: importable",
        "absent": "not installed: get absent",
    }


@pytest.mark.usefixtures("interruptible")  # and so is a child
def test_whoever_interrupts_the_listing_waits_for_no_import(python: Callable[[str], str], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = listing("a1", "b1") + f"echo $$ >> {pids}\nexec sleep 60"
    command = [sys.executable, "-m", "kaudit", "engines", "--python", python(script)]
    began = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as listed:
        while not pids.exists() or len(pids.read_text().splitlines()) < 2:
            assert time.monotonic() - began < 20
            time.sleep(0.02)
        listed.send_signal(signal.SIGINT)
        assert listed.wait(20) == 130
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


def test_a_thread_that_cannot_start_ends_the_listing_with_one_line(
    python: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, start = iter((True, False)), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if not next(starts):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"^no thread can be started: Resource temporarily unavailable; .*ulimit -u"):
        installed(python(listing("a1", "b1") + "exec sleep 60"))
    assert time.monotonic() - began < 20


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
        ("sleep 60 & echo $!; while echo on; do :; done >&2", None, "no end after 0.4 s"),
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
