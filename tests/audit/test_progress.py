"""What a log is told while a sweep runs."""

import pytest

from kaudit import progress
from kaudit.progress import Bar, Lines


def test_a_log_gets_a_line_at_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as shown:
        assert isinstance(shown, Lines)
        shown.begin(20, 100)
        for done in range(21, 101):
            shown.opened("a cell")
            shown.finished(done)
    captured = capsys.readouterr()
    assert not captured.out
    lines = captured.err.splitlines()
    assert lines[0] == "100 cells, 20 of them done before"
    assert [line.split(",")[0] for line in lines[1:]] == [f"{done} of 100 cells" for done in range(30, 101, 10)]
    assert lines[1].endswith("s left")
    assert lines[-1] == "100 of 100 cells"


def test_a_log_hears_of_a_slow_cell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Lines()
    shown.begin(0, 100)
    shown.opened("quick")
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    shown.opened("slow")
    assert capsys.readouterr().err.splitlines() == ["100 cells", "0 of 100 cells, at slow"]


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress() as shown:
        assert isinstance(shown, Bar)
        shown.begin(0, 2)
        shown.opened("decode/[bold]")
        shown.note("waking up [now]")
        shown.finished(1)
    captured = capsys.readouterr()
    assert not captured.out
    assert "waking up [now]" in captured.err
    assert "decode/[bold]" in captured.err
    assert "1/2" in captured.err
