"""The report page and what it must not do: a table's text runs nothing, and nothing foreign gets in."""

from pathlib import Path

import pytest
from chromium import Chromium

from kaudit.observation import Kernel, Ran, Rejection, Row, Said
from kaudit.report.html import Timed, of_one_table
from kaudit.table import SCHEMA, Device, Header, Stamp, Table

CELL = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k4096"
HOSTILE = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'><!--<script>{{ 7 * 7 }}"


def test_a_hostile_table_does_nothing(browser: Chromium, tmp_path: Path) -> None:
    device = Device(HOSTILE, HOSTILE, 132, HOSTILE)
    stamp = Stamp(HOSTILE, HOSTILE, device, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, HOSTILE, HOSTILE)
    header = Header(SCHEMA, HOSTILE, stamp, {HOSTILE: ("fast", HOSTILE)})
    no = Rejection("fast", "announced", (Said(HOSTILE),))
    outcome = Ran(HOSTILE, (Kernel(HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE),), "fast", (no,))
    page = of_one_table(Timed(HOSTILE, Table.of(header, [Row(CELL, HOSTILE, outcome)]), {}))
    (tmp_path / "page.html").write_text(page, "utf-8")
    browser.open(tmp_path / "page.html")
    browser.evaluate("document.querySelector('#list button').click()")
    assert HOSTILE in browser.text("#story")
    assert HOSTILE in browser.text("h1")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("window.hit === undefined")


ATTACKS = {
    "Object.assign(document.createElement('script'), { textContent: 'hit = 1' })": "trusted-types",
    "document.body.innerHTML = '<p>'": "trusted-types",
    "document.body.append(Object.assign(new Image(), { src: 'x.png' }))": "img-src",
    "document.head.append(Object.assign(document.createElement('style'), { textContent: '*{}' }))": "style-src",
    "fetch('x.json').catch(() => 0)": "connect-src",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_the_page_s_own_is_stopped(chromium: Chromium, pages: Path, attack: str) -> None:
    chromium.open(pages / "one.html")
    chromium.evaluate(
        "addEventListener('securitypolicyviolation', event => (window.stopped = event.effectiveDirective))"
    )
    chromium.evaluate(f"try {{ {attack} }} catch {{}}")
    chromium.wait_for(f"window.stopped?.includes({ATTACKS[attack]!r})")
    assert chromium.evaluate("window.hit === undefined && document.querySelector('#heat td') !== null")
