from hypothesis import given
from markdown_it import MarkdownIt
from markdown_it.token import Token
from reports_for_tests import WAIVER, diffed, gated, golden, nasty, reports
from tables_for_tests import cells, ran, table

from golden.loss import LOST, TOLD_AGAIN
from kaudit.report.judged import Report
from kaudit.report.markdown import code, render
from kaudit.terminal import printable


def tokens(report: Report) -> list[Token]:
    text = "\n".join(printable(line) for line in render(report))
    blocks = MarkdownIt().enable("table").parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


@given(nasty)
def test_any_text_fits_into_a_code_span(text: str) -> None:
    (paragraph,) = [token for token in MarkdownIt().parse(f"- {code(text)}") if token.type == "inline"]
    assert paragraph.children is not None
    (span,) = paragraph.children
    assert (span.type, span.content.split()) == ("code_inline", text.replace("\0", "�").split())


@given(reports(cells))
def test_only_our_own_words_are_markup(report: Report) -> None:
    found = tokens(report)
    html = [token.content for token in found if token.type in ("html_block", "html_inline")]
    assert all(line.startswith(("<details>\n<summary>", "</details>")) for line in html)
    assert len(html) == 2 * len({change.kind for change in report.told})
    assert not [token for token in found if token.type in ("link_open", "image", "fence", "code_block")]


def test_a_diff_has_one_column_and_a_gate_three() -> None:
    before, after = table(ran("flash")), table(ran("eager"))
    assert "| kind | changed | |" in list(render(diffed(before, after)))
    assert next(render(diffed(before, before))) == "### kaudit: nothing changed"
    lines = list(render(gated(before, after, waivers=[WAIVER])))
    assert "| kind | failing | waived | tolerated | |" in lines
    assert "- `waived until 2026-06-30: 1 silent_fallback in " + WAIVER.cells + ": known`" in lines


def test_the_golden_loss() -> None:
    lines = list(render(golden()))
    assert lines[0] == f"### kaudit: gate failed: {LOST} silent_fallback; 0 waived, {TOLD_AGAIN} tolerated"
    assert "- `head_dim=128 and page_size>=16: 76 of 76 moved, 4 of 113 others`" in lines
    assert f"- and {LOST - 5} more" in lines
    assert next(token.content for token in tokens(golden()) if token.type == "code_inline") == "reference"
