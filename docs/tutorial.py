"""Does docs/tutorial.md: runs its commands in a copy of the sources and writes what they print into it. `make docs`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tutorial.md"
SOURCES = ("audit", "probes", "kernels", "matrices")
SETS_UP = "make sweep"
"""What the first block does; here that is done."""

STEP = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
"""A block of commands, and the block of output right after it."""


def steps(page: str, folder: Path) -> Iterator[tuple[str, str | None, str]]:
    """Each block of commands, what the page shows of its output (None: nothing), and what it prints when run."""
    for source in SOURCES:
        shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns("__pycache__"))
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
    return ran.stdout


if __name__ == "__main__":
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        for commands, shown, printed in steps(page, Path(folder)):
            if shown is not None:
                before, after = (f"```sh\n{commands}```\n\n```text\n{output}```\n" for output in (shown, printed))
                page = page.replace(before, after)
    PAGE.write_text(page)
