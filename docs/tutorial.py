"""Does the pages that are to be done: runs their commands in a copy of the sources and writes down what they print.

`make docs`. A block of code that starts with `# NAME` is a file of that name.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs/tutorial.md", ROOT / "docs/adapter.md")
SOURCES = ("audit", "probes", "kernels", "matrices")
SETS_UP = "make sweep"
"""What the first block does; here that is done."""

FILE = re.compile(r"^```(?:python|yaml)\n# (\S+\.(?:py|yaml))\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block that is a file."""

STEP = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
"""A block of commands, and the block of output right after it."""

UNDER_WAY = re.compile(r"^\d+ of \d+ cells, .* left\n", re.MULTILINE)
"""What a slow machine prints, and a fast one does not."""


def steps(page: str, folder: Path) -> Iterator[tuple[str, str | None, str]]:
    """Each block of commands, what the page shows of its output (None: nothing), and what it prints when run."""
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILE.finditer(page):
        (folder / file[1]).write_text(file[2])
    for step in STEP.finditer(page):
        if SETS_UP not in step[1]:
            yield step[1], step[2], _printed(step[1], folder)


def _printed(commands: str, folder: Path) -> str:
    """What a reader's shell prints, with this Python's kaudit on the path and the copied sources first."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(folder / source) for source in SOURCES),
    }
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    ran = subprocess.run(
        shell, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    if ran.returncode:
        raise AssertionError(f"exit code {ran.returncode}:\n{commands}{ran.stdout}")
    return UNDER_WAY.sub("", ran.stdout)


def _done(page: str) -> str:
    """The page with what its commands print today."""
    with tempfile.TemporaryDirectory() as folder:
        for commands, shown, printed in steps(page, Path(folder)):
            if shown is not None:
                before, after = (f"```sh\n{commands}```\n\n```text\n{output}```\n" for output in (shown, printed))
                page = page.replace(before, after)
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(_done(path.read_text()))
