"""The docs say what the code says, and link to what is there."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import generate

ROOT = generate.DOCS.parent
PAGES = [*generate.pages(), ROOT / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_generated_parts_are_as_the_code_says(page: Path) -> None:
    text = page.read_text()
    assert text == generate.regenerated(text), "run make docs"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(there), f"{target} is not there"


def test_the_entry_that_the_page_on_kernels_shows_is_that_of_the_catalogue() -> None:
    (shown,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/kernels.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown in (ROOT / "kernels/kaudit_kernels/catalogue/norms.py").read_text()


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    assert not [page.name for page in generate.pages() if page.name != "README.md" and f"({page.name})" not in index]
