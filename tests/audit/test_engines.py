import sys

import pytest

from kaudit.engines import installed
from kaudit.errors import UserError


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
