import sys

import pytest

from kaudit.engines import installed
from kaudit.errors import UserError


def test_each_listed_engine_says_what_is_installed_or_how_to_get_it() -> None:
    lines = list(installed(sys.executable))
    assert any(line.startswith("reference ") and " torch 2." in line for line in lines)
    assert all("not installed: pip install " in line for line in lines if "not installed" in line)


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_a_python_without_kaudit_is_one_line(python: str) -> None:
    with pytest.raises(UserError, match=r"--python .*install kaudit there"):
        list(installed(python))
