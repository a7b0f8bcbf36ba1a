"""The address of the report page says what the reader looks at, and brings the next one there."""

from pathlib import Path

from chromium import Chromium

from golden.loss import ROWS

STATE = (
    "JSON.stringify([view.down, view.across, view.byTime, view.field, view.search, [...view.verdicts],"
    " [...view.axes].filter(([, chosen]) => chosen.size).map(([name, chosen]) => [name, ...chosen]),"
    " document.getElementById('count').textContent, document.getElementById('listed').textContent])"
)


def fragment(browser: Chromium) -> str:
    return str(browser.evaluate("location.hash"))


def follow(browser: Chromium, page: Path, link: str) -> None:
    """Opens the page anew: from the same page, another fragment alone would be no new load."""
    browser.call("Page.navigate", url="about:blank")
    browser.complaints.clear()
    browser.call("Page.navigate", url=page.as_uri() + link)
    browser.wait_for("document.documentElement?.dataset.ready")


def test_a_link_brings_another_reader_to_the_same_sight(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "two.html")
    assert fragment(browser) == ""
    browser.evaluate(
        "[...document.querySelectorAll('#verdicts input')][0].click();"
        "view.axes.get('kv_layout').add(AXES.get('kv_layout').values.indexOf('paged'));"
        "[view.down, view.across, view.byTime] = ['q_heads', 'head_dim', true];"
        "search.value = 'k8192'; search.dispatchEvent(new Event('input'));"
    )
    browser.evaluate("document.querySelector('#heat td.field').click()")
    browser.evaluate("document.querySelector('#list button').click()")
    link, state, cell = fragment(browser), browser.evaluate(STATE), browser.text("#cell")
    for part in ("down=q_heads", "across=head_dim", "colour=time", "verdict=silent+fallback", "id=k8192"):
        assert part in link
    assert "kv_layout=paged" in link
    assert "cell=decode/bf16/" in link

    follow(browser, pages / "two.html", link)
    assert browser.evaluate(STATE) == state
    assert browser.evaluate("document.getElementById('story').open")
    assert browser.text("#cell") == cell
    assert fragment(browser) == link
    controls = [browser.evaluate(f"document.getElementById('{name}').value") for name in ("down", "across", "colour")]
    assert controls == ["q_heads", "head_dim", "time"]
    assert browser.evaluate("[document.querySelector('#verdicts input').checked, search.value].join()") == "true,k8192"
    assert browser.evaluate(
        "[...document.querySelectorAll('#axes summary')].some(one => one.innerText === 'kv_layout: paged')"
    )

    browser.press("Escape")
    browser.wait_for("!location.hash.includes('cell=')")  # a dialog tells that it was closed a moment later
    browser.evaluate("document.getElementById('clear').click()")
    assert "kv_layout=" not in fragment(browser)
    assert "id=" not in fragment(browser)


def test_a_link_to_what_the_page_does_not_have_shows_the_page(browser: Chromium, pages: Path) -> None:
    link = "#down=no+axis&across=%3Cscript%3E&row=x&verdict=unheard&head_dim=7&colour=sound&cell=no/cell&of=attention"
    follow(browser, pages / "one.html", link)
    assert browser.text("#count").startswith(f"{ROWS:,} of {ROWS:,} rows")
    assert not browser.evaluate("document.getElementById('story').open")
    assert fragment(browser) == ""


def test_another_address_in_the_bar_is_followed(browser: Chromium, pages: Path) -> None:
    browser.open(pages / "one.html")
    browser.evaluate("location.hash = '#id=k8192'")
    browser.wait_for(
        "typeof search !== 'undefined' && search.value === 'k8192' && document.documentElement.dataset.ready"
    )
    assert not browser.text("#count").startswith(f"{ROWS:,} of")
    browser.complaints[:] = browser.complaints[:1]  # it was loaded twice
