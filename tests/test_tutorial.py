"""docs/tutorial.md and docs/adapter.md, done: their commands run on a CPU, and print what the pages show."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import tutorial

PROGRESS = re.compile(r"starting the profiler|^\d+ of \d+ cells|^\d+ cells$")
REVISION = re.compile(r"\b[0-9a-f]{12}(\.g[0-9a-f]{12})?\b")


def lines(output: str) -> list[str]:
    """Without what differs from run to run: progress, and the digests of sources."""
    return [REVISION.sub("REVISION", line) for line in output.splitlines() if not PROGRESS.search(line)]


@pytest.mark.parametrize("page", tutorial.PAGES, ids=lambda page: page.stem)
def test_the_page_does_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    for commands, shown, printed in tutorial.steps(page.read_text(), tmp_path):
        if shown is not None:
            assert lines(shown) == lines(printed), f"{commands}prints something else; run make docs"


def test_the_tutorial_ends_in_a_failing_ci() -> None:
    page, _ = tutorial.PAGES
    assert "gate failed: 2 contradiction, 2 silent_fallback" in page.read_text()
