"""Screenshots of report pages, for eyes: `python tests/browser/look.py OUT PAGE.html...`."""

import sys
import tempfile
from pathlib import Path

from chromium import Chromium


def main() -> None:
    out, *pages = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Chromium(Path(profile)) as browser:
        for page in pages:
            for scheme in ("light", "dark"):
                for width in (1280, 640):
                    browser.media(scheme, width)
                    browser.open(page.resolve())
                    browser.screenshot(out / f"{page.stem}-{scheme}-{width}.png")
                    browser.evaluate("document.querySelector('#list button').click()")
                    browser.screenshot(out / f"{page.stem}-{scheme}-{width}-story.png")


if __name__ == "__main__":
    main()
