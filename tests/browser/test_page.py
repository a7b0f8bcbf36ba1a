"""The report page in a real browser: what a reader does with keys and a mouse."""

import re
from pathlib import Path

from chromium import Chromium

from golden.loss import CELLS, LOST, OF_64, OF_128, ROWS


def focus(browser: Chromium) -> str:
    return str(browser.evaluate("document.activeElement.id || document.activeElement.innerText"))


def choose(browser: Chromium, select: str, option: str) -> None:
    chosen = f"const select = document.getElementById({select!r}); select.value = {option!r};"
    browser.evaluate(f"{{ {chosen} select.dispatchEvent(new Event('change')) }}")


def test_the_diff_shows_where_the_fast_path_was_lost(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "two.html")
    assert f"silent_fallback: {LOST}" in browser.text("#told")
    assert "head_dim=128 and page_size>=16" in browser.text("#told li li")
    assert f"silent fallback {LOST}" in browser.text("#verdicts")
    assert browser.text("#heat td.on-bad") == f"▼ {LOST}/{OF_128}"
    assert browser.text("#list tbody tr").startswith("▼ silent fallback")
    assert "split_kv_decode → flash_prefill" in browser.text("#list tbody tr").replace("\u200b", "")


def test_all_is_done_with_the_keyboard(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "two.html")
    order = []
    for _ in range(40):
        browser.press("Tab")
        order.append(browser.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if order[-1] == "TD":
            break
    assert order[-7:] == ["search", "clear", "SUMMARY", "down", "across", "colour", "TD"]
    browser.press("ArrowDown", "End", "ArrowLeft", "ArrowLeft")
    assert focus(browser) == f"▼ {LOST}/{OF_128}"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    browser.press("Enter")
    assert focus(browser) == "listed"
    assert browser.text("#listed").startswith(f"Rows of op=attention, head_dim=128: {OF_128}, worst first")
    browser.press("Tab", "Enter")
    assert browser.evaluate("document.getElementById('story').open")
    assert focus(browser) == "close"
    browser.press("Escape")
    assert not browser.evaluate("document.getElementById('story').open")
    assert browser.evaluate("document.activeElement.className") == "cell"
    browser.evaluate("document.querySelector('#heat td[aria-selected=true]').focus()")
    browser.press("Escape")
    assert browser.text("#listed") == f"Rows: {ROWS:,}, worst first"
    assert focus(browser) == f"▼ {LOST}/{OF_128}"


def test_a_space_ticks_a_filter_and_the_count_is_said(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "two.html")
    browser.evaluate("document.querySelector('#verdicts input').focus()")
    browser.press(" ")
    assert browser.text("#count") == f"{LOST} of {ROWS:,} rows, in {LOST} of {CELLS} cells"
    assert browser.evaluate("document.getElementById('count').role") == "status"
    browser.evaluate("document.getElementById('clear').click()")
    assert browser.text("#count").startswith(f"{ROWS:,} of")


def test_rows_are_filtered_by_axis_and_by_id(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "one.html")
    browser.evaluate("document.getElementById('filters').open = true")
    axis = "[...document.querySelectorAll('#axes details')].find(one => one.innerText.startsWith('head_dim'))"
    browser.evaluate(f"{axis}.open = true")
    browser.wait_for(f"{axis}.querySelector('input') !== null")
    browser.evaluate(f"[...{axis}.querySelectorAll('label')].find(one => one.innerText.trim() === '64').click()")
    assert browser.text("#count").endswith(f"in {OF_64} of {CELLS} cells")
    assert browser.evaluate(f"{axis}.querySelector('summary').innerText") == "head_dim: 64"
    browser.evaluate("search.value = 'nothing like it'; search.dispatchEvent(new Event('input'))")
    assert browser.text("#count").startswith(f"0 of {ROWS:,} rows")
    assert browser.text("#listed").startswith("Rows: 0")


def test_a_story_tells_paths_reasons_and_kernels(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "two.html")
    browser.evaluate("document.querySelector('#list button').click()")
    told = browser.text("#story details[open]")
    for said in (
        "without a word",
        "split_kv_decode: turned down",
        "asked head_dim=128, needs one of 64",
        "flash_prefill: ran",
    ):
        assert said in told
    for said in ("flash_prefill_kernel", "reference_prefill, attention", "128×1×1", "time on the device"):
        assert said in told
    assert browser.evaluate("document.querySelectorAll('#story > details').length") >= 10
    browser.evaluate("document.querySelector('#story > details').open = true")
    unchanged = browser.text("#story > details")
    assert "Before and after, the same" in unchanged
    assert re.search(r"time on the device\s+(\d+\.\d+) µs → \d+", unchanged)


def test_the_map_takes_the_axes_and_the_times_it_is_given(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "one.html")
    choose(browser, "down", "q_heads")
    choose(browser, "across", "nothing")
    choose(browser, "colour", "time")
    assert browser.text("#says") == "q_heads by nothing: median time of a row"
    assert browser.text("#heat td").endswith("µs")
    assert "50.0 µs" in browser.text("#list tbody tr")
    browser.evaluate("document.getElementById('more').click()")
    assert browser.evaluate("document.querySelectorAll('#list tbody tr').length") == 100
    browser.open(pages / "two.html")
    choose(browser, "colour", "time")
    assert browser.text("#heat td") == "2.00×"
    assert browser.evaluate("document.querySelector('#heat td').ariaLabel").startswith("2.00× slower, median of")


def test_a_new_cell_has_no_row_of_its_own_to_tell_of(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "new.html")
    browser.evaluate(
        "[...document.querySelectorAll('#list tr')].find(row => row.innerText.includes('whole cell'))"
        ".querySelector('button').click()"
    )
    told = browser.text("#story details[open]")
    assert "new cell: " in told
    assert "the same" not in told
