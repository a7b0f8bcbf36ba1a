"""The report page for every reader: headers for who listens, contrast in both colour schemes, and narrow windows."""

from pathlib import Path

import pytest
from chromium import Chromium

from golden.loss import LOST, TOLD_AGAIN


def test_a_screen_reader_is_told_of_a_grid_with_headers(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "two.html")
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    names = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if "role" in node}
    assert ("grid", "op by head_dim: worst verdict, and the rows that have it") in names
    assert {("rowheader", "attention"), ("columnheader", "128"), ("combobox", "Colour by")} <= names
    told = f"silent fallback {LOST}, reason changed {TOLD_AGAIN}"
    assert any(role == "gridcell" and name.startswith(told) for role, name in names)
    assert not [role for role, name in names if role in ("button", "checkbox", "combobox", "searchbox") and not name]


CONTRAST = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const light = colour => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(value => value / 255)
      .map(value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const clear = "rgba(0, 0, 0, 0)";
  const own = one => getComputedStyle(one).backgroundColor;
  const behind = one => (own(one) === clear ? behind(one.parentElement) : own(one));
  const texts = "p, li, td, th, label, .symbol, .many, button, summary, dt, .source";
  const ratios = [...document.querySelectorAll(texts)].map(one => {
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
  return Math.min(...ratios);
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(browser: Chromium, pages: Path, scheme: str) -> None:
    browser.media(scheme)
    for name in ("one.html", "two.html"):
        browser.open(pages / name)
        assert browser.evaluate(CONTRAST) >= 4.5
        browser.evaluate("view.byTime = true; refresh(); document.querySelector('#list button').click()")
        assert browser.evaluate(CONTRAST) >= 4.5
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 22, 26)"
    assert dark == (scheme == "dark")


def test_a_narrow_window_scrolls_in_one_direction(browser: Chromium, pages: Path) -> None:
    browser.media("light", width=480)
    browser.open(pages / "two.html")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 480
    browser.evaluate("document.querySelector('#list button').click()")
    assert browser.evaluate("document.getElementById('story').scrollWidth") <= 480
