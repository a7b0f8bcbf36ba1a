"""Reports to test formats with: of the golden tables, and with the worst texts that a table can hold."""

from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from tables_for_tests import CELL, header

from kaudit.change import KINDS
from kaudit.diff import changes, comparable
from kaudit.expect import Miss
from kaudit.gate import verdict
from kaudit.observation import Crashed, Kernel, Ran, Rejection, Row, Said
from kaudit.policy import Policy, Waiver
from kaudit.report.judged import Report
from kaudit.table import Table, read

GOLDEN = Path(__file__).parents[1] / "golden"
DEFAULT = Policy()
TODAY = date(2026, 6, 30)


def diffed(before: Table, after: Table, file: Path = Path("after.jsonl"), most: int = 5) -> Report:
    return Report(before, after, file, comparable(before, after), tuple(changes(before, after)), most)


def gated(
    before: Table,
    after: Table,
    policy: Policy = DEFAULT,
    waivers: Sequence[Waiver] = (),
    unmet: tuple[Miss, ...] = (),
    most: int = 5,
) -> Report:
    found = diffed(before, after, most=most)
    judged = verdict(found.changes, policy, waivers, TODAY)
    return Report(before, after, found.file, found.context, found.changes, most, judged, unmet)


@cache
def golden(name: str = "decode-h200-silent") -> Report:
    return gated(read(GOLDEN / "decode-h200.jsonl"), read(GOLDEN / f"{name}.jsonl"))


nasty = st.one_of(
    st.text(max_size=9),
    st.text(st.characters(), max_size=9),  # lone surrogates and all
    st.text("`|<>&\"'\\:,%\r\n\t\x00\x1b\x85\ufffe ]{}=a", max_size=12),
    st.sampled_from(["::error::x", "##[error]x", "]]>", "<!--", "</details>", "@everyone", "[a](b)", "```", "%0A"]),
)


@st.composite
def reports(draw: st.DrawFn, ids: st.SearchStrategy[str] = nasty) -> Report:
    """Of one or two cells, whose ids, ops, engines and reasons are anything, but for an op called like a whole cell.

    Formats that say what the changes share read the ids, and so need real ones.
    """
    op = draw(nasty.filter(lambda name: name != "*"))
    head = header({op: ("fast", "slow")}, engine=draw(nasty), matrix=draw(nasty))
    said = Rejection("fast", "announced", (Said(draw(nasty)),))
    kernels = (Kernel(draw(nasty), draw(nasty), "attention", 1),)
    fell = Ran("slow", kernels, rejections=(said,) if draw(st.booleans()) else ())
    cells = draw(st.lists(ids, min_size=1, max_size=2, unique=True))
    before = [Row(cell, op, Ran("fast", kernels)) for cell in cells]
    after = [Row(cells[0], op, fell), *(Row(cell, "*", Crashed(draw(nasty))) for cell in cells[1:])]
    policy = Policy(fail_on=draw(st.lists(st.sampled_from(list(KINDS)), unique=True).map(tuple)))
    waivers = [
        Waiver(cells="*", kind=kind, because=draw(nasty.filter(str.strip)), expires=TODAY)
        for kind in draw(st.lists(st.sampled_from(["silent_fallback", "crashed"]), unique=True))
    ]
    tables = Table.of(head, before), Table.of(head, after)
    if draw(st.booleans()):
        return diffed(*tables)
    return gated(*tables, policy, waivers, tuple(draw(st.lists(st.builds(Miss, nasty, nasty), max_size=2))))


WAIVER = Waiver(cells=CELL, kind="silent_fallback", because="known", expires=TODAY)
