"""A matrix to its cells: the full product, covering arrays, and the account of what is left out."""

from collections import Counter
from itertools import combinations as choose
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaudit.applicable import inapplicable
from kaudit.cell import Cell, Heads, Layout, Mask, Rope, Shape
from kaudit.errors import UserError
from kaudit.matrix import Matrix, expand, load
from kaudit.matrix.lengths import Length, ShapeSpec
from kaudit.matrix.model import Axes, ShapeChoice
from kaudit.matrix.rules import AXES_OF, Forbid, When, fits, values
from kaudit.matrix.space import AXES, cell_of, combinations
from kaudit.report.matrix import matrix_text

TEXT = """
max_len: 4096
axes:
  phase: [prefill, decode]
  kv_dtype: [same, bf16, fp8_e4m3]
  kv_layout: [contiguous, paged1, paged16]
  mask: [causal, window8]
  features: [plain, prefix_share]
  shape:
    prefill: [{batch: 2, q_len: kv_len, kv_len: page+1}, b2q17k17]
    decode: [{batch: 2, q_len: 1, kv_len: max}, {batch: 1, q_len: 2, kv_len: 2*page-1, lengths: skewed}]
forbid:
  - when: {kv_layout: paged16, features: prefix*}
    because: not built
  - when: {mask: window, kv_len: 4096}
    because: too long
"""


def matrix(folder: Path, text: str) -> Matrix:
    file = folder / "m.yaml"
    file.write_text(text)
    return load(str(file))


def test_full_product_accounts_for_every_combination(tmp_path: Path) -> None:
    read = matrix(tmp_path, TEXT)
    plan = expand(read)
    cells, skipped, unresolved, forbidden = set(), set(), Counter(), Counter()
    for combination in product(*(getattr(read.axes, name) for name in AXES)):
        if combination[0] not in combination[-1].phases:
            continue
        cell = cell_of(combination, read.max_len)
        rule = next((r for r in read.forbid if isinstance(cell, Cell) and r.when.holds(cell)), None)
        if rule is not None or (combination[4] == Layout("paged", 16) and combination[7]):
            forbidden["not built" if rule is None else rule.because] += 1
        elif isinstance(cell, str):
            unresolved[cell] += 1
        elif inapplicable(cell):
            skipped.add(cell.id)
        else:
            cells.add(cell.id)
    assert [cell.id for cell in plan.cells] == sorted(cells)
    assert [cell.id for cell, _ in plan.skipped] == sorted(skipped)
    assert dict(plan.unresolved) == unresolved
    assert dict(plan.forbidden) == forbidden
    assert plan.product == 2 * 3 * 3 * 2 * 2 * 2
    assert "shape page+1 has no page in kv_layout=contiguous" in unresolved
    assert all(reason == inapplicable(cell) for cell, reason in plan.skipped)


def test_lengths_resolve_in_each_cell() -> None:
    paged, windowed = Layout("paged", 16), Mask("window", 100)

    def resolved(q_len: str | int, kv_len: str | int, layout: Layout = paged, mask: Mask = windowed) -> Shape | str:
        return ShapeSpec(2, Length.parse(q_len), Length.parse(kv_len)).resolve(layout, mask, 8192)

    assert resolved(1, "page-1") == Shape(2, 1, 15)
    assert resolved("kv_len-1", "2*window+3") == Shape(2, 202, 203)
    assert resolved("page", "max") == Shape(2, 16, 8192)
    assert resolved(1, "window", mask=Mask("causal")) == "shape window has no window in mask=causal"
    assert resolved(1, "page-1", Layout("paged", 1)) == (
        "shape kv_len=page-1 is 0 tokens with kv_layout=paged1 and mask=window100, needs 1"
    )


@pytest.mark.parametrize("text", ["page", "window+1", "2*page-1", "max", "kv_len-3", "kv_len"])
def test_a_length_prints_as_it_is_written(text: str) -> None:
    assert str(Length.parse(text)) == text


@pytest.mark.parametrize("text", ["", "page+", "page*2", "+page", "page +1", "pages", "1", "-1", "page+1+1", "٣*page"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of tokens, nor page, window or max"):
        Length.parse(text)


VALUES = {
    "phase": ["prefill", "chunked_prefill", "decode", "mixed"],
    "dtype": ["fp32", "bf16", "fp8_e4m3"],
    "kv_dtype": ["same", "bf16", "fp32", "int8", "fp8_e4m3"],
    "heads": [Heads(4, 2, 64, 64), Heads(4, 1, 96, 96)],
    "kv_layout": [Layout("contiguous"), Layout("ragged"), Layout("paged", 1), Layout("paged", 16)],
    "mask": [Mask("none"), Mask("custom"), Mask("tree"), Mask("window", 4), Mask("window", 32)],
    "rope": [Rope("none"), Rope("neox", "yarn", 9)],
    "features": [(), ("softcap",), ("prefix_share",), ("speculative_tree",), ("prefix_share", "speculative_tree")],
    "shape": [
        ShapeSpec.of(Shape(1, 16, 16)),
        ShapeSpec.of(Shape(2, 16, 64)),
        ShapeSpec.of(Shape(2, 1, 64)),
        ShapeSpec(2, Length.parse("page"), Length.parse("page+1")),
        ShapeSpec(1, Length.parse("kv_len"), Length.parse("window+1")),
        ShapeSpec(1, Length(1), Length.parse("page-1")),
    ],
}
KEYS = {
    "phase": ["decode", "*prefill"],
    "kv_dtype": ["same", "int8"],
    "head_dim": ["64"],
    "kv_layout": ["paged", "paged16", "ragged"],
    "window": ["4", "32"],
    "softcap": ["yes", "no"],
    "q_len": ["1", "1?"],
    "kv_len": ["17", "64", "*"],
}
RULE = st.dictionaries(st.sampled_from(list(KEYS)), st.integers(0, 1), min_size=1, max_size=3).map(
    lambda chosen: Forbid(When(tuple((key, (KEYS[key][i % len(KEYS[key])],)) for key, i in chosen.items())), "r")
)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    axes = {
        name: tuple(draw(st.lists(st.sampled_from(own), min_size=1, max_size=3, unique=True)))
        for name, own in VALUES.items()
    }
    phases = st.lists(st.sampled_from(axes["phase"]), min_size=1, unique=True).map(tuple)
    axes["shape"] = tuple(ShapeChoice(spec, draw(phases)) for spec in axes["shape"])
    return Matrix("m", Axes(**axes), tuple(draw(st.lists(RULE, max_size=3))), (), draw(st.sampled_from([2, 3])), 64)


def valid_rows(read: Matrix) -> list[tuple[int, ...]]:
    def is_valid(combination: tuple[object, ...]) -> bool:
        if combination[0] not in combination[-1].phases:
            return False
        cell = cell_of(combination, read.max_len)
        return isinstance(cell, Cell) and not any(r.when.holds(cell) for r in read.forbid) and not inapplicable(cell)

    own = [getattr(read.axes, name) for name in AXES]
    return [
        row for row in product(*(range(len(v)) for v in own)) if is_valid([v[i] for v, i in zip(own, row, strict=True)])
    ]


@settings(max_examples=80, deadline=None)
@given(matrices())
def test_covering_array_has_every_tuple_of_the_valid_cells(read: Matrix) -> None:
    """By brute force over real cells: the tables by class agree with `inapplicable`, the rules and the lengths."""
    plan = expand(read)
    own = [getattr(read.axes, name) for name in AXES]
    ids = {cell.id for cell in plan.cells}
    valid = valid_rows(read)
    cell_ids = {row: cell_of([v[i] for v, i in zip(own, row, strict=True)], read.max_len).id for row in valid}
    assert ids <= set(cell_ids.values())
    wanted = {tuple((a, row[a]) for a in axes) for row in valid for axes in choose(range(9), read.cover)}
    kept = [row for row in valid if cell_ids[row] in ids]
    assert wanted == {tuple((a, row[a]) for a in axes) for row in kept for axes in choose(range(9), read.cover)}
    assert not plan.skipped
    assert not plan.unresolved
    values_in_cells = {(axis, row[axis]) for row in valid for axis in range(9)}
    every = sum(len(v) for v in own)
    assert len(plan.uncovered) == every - len(values_in_cells)
    assert plan.product == combinations(read.axes)


def test_an_axis_value_in_no_cell_says_why(tmp_path: Path) -> None:
    plan = expand(matrix(tmp_path, TEXT + "  - when: {kv_dtype: fp8_e4m3}\n    because: no scales\n"))
    assert [(missing.axis, missing.value, missing.why) for missing in plan.uncovered] == [
        ("kv_dtype", "fp8_e4m3", "forbidden: not built; too long; no scales")
    ]


def test_the_full_product_has_a_limit(tmp_path: Path) -> None:
    read = matrix(tmp_path, TEXT)
    with pytest.raises(UserError, match="the full product has 144 combinations, the limit is 144; write cover: 2 or"):
        expand(read, max_cells=144)
    assert expand(read, max_cells=145).product == 144


def test_cover_works_where_the_product_is_out_of_reach(tmp_path: Path) -> None:
    heads = ", ".join(f"h{n}x1x64" for n in range(1, 41))
    ropes = ", ".join(f"neox@{n}" for n in range(1, 41))
    layouts = ", ".join(f"paged{n}" for n in range(1, 41))
    masks = ", ".join(f"window{n}" for n in range(1, 41))
    axes = f"axes: {{heads: [{heads}], rope: [{ropes}], kv_layout: [{layouts}], mask: [{masks}]}}"
    plan = expand(matrix(tmp_path, f"cover: 2\n{axes}"))
    assert plan.product == 40**4
    assert 1600 <= len(plan.cells) < 2800


def test_digest_is_of_the_cells_alone(tmp_path: Path) -> None:
    plan = expand(matrix(tmp_path, TEXT))
    reordered = TEXT.replace("[prefill, decode]", "[decode, prefill]").replace("not built", "another reason")
    assert expand(matrix(tmp_path, reordered)).digest == plan.digest
    assert expand(matrix(tmp_path, TEXT.replace("4096", "2048"))).digest != plan.digest


CELL = Cell.parse("decode/bf16/kv-bf16/h8x2x64x32/paged16/window4/neox+yarn@9/sinks+softcap/b8q1k17skew")


@pytest.mark.parametrize(
    ("key", "fitting", "other"),
    [
        ("phase", "dec*", "prefill"),
        ("kv_dtype", "same", "int8"),
        ("heads", "h8x2x64x32", "h8x2x64"),
        ("v_head_dim", "32", "64"),
        ("kv_layout", "paged", "contiguous"),
        ("kv_layout", "paged16", "paged1"),
        ("page_size", "16", "1"),
        ("mask", "window", "causal"),
        ("mask", "window4", "window"[:-1]),
        ("rope", "neox+yarn@9", "neox+yarn"),
        ("rope", "neox", "interleaved"),
        ("rope_offset", "9", "0"),
        ("features", "*softcap*", "softcap"),
        ("sinks", "yes", "no"),
        ("shape", "b8*skew", "b8"),
        ("lengths", "skewed", "even"),
        ("kv_len", "1[67]", "16"),
    ],
)
def test_when_takes_file_tokens_and_flat_values(key: str, fitting: str, other: str) -> None:
    assert fits(CELL, key, (fitting,))
    assert fits(CELL, key, (other, fitting))
    assert not fits(CELL, key, (other,))


def test_when_may_name_every_axis() -> None:
    assert set(CELL.axes()) | set(AXES) == set(AXES_OF)
    assert all(values(CELL, key) for key in AXES_OF)


def test_features_in_when_have_no_order(tmp_path: Path) -> None:
    text = "axes: {features: [sinks+softcap]}\nforbid: [{when: {features: softcap+sinks}, because: a}]"
    read = matrix(tmp_path, text)
    assert read.forbid[0].when.holds(CELL)


def test_defaults_give_one_cell_per_phase(tmp_path: Path) -> None:
    plan = expand(matrix(tmp_path, "axes: {phase: [prefill, chunked_prefill, decode, mixed]}"))
    assert matrix_text(plan)[0] == [
        "chunked_prefill/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b1q128k1024",
        "decode/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b8q1k1024",
        "mixed/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b8q128k1024",
        "prefill/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b1q128k128",
    ]


def test_the_report_groups_skips_by_reason(tmp_path: Path) -> None:
    shapes = "[b1q1k8, {batch: 1, q_len: 1, kv_len: page}]"
    text = f"axes: {{phase: [decode], mask: [causal, tree], dtype: [bf16, fp16], shape: {shapes}}}"
    rule = "\nforbid: [{when: {dtype: fp16}, because: never}]"
    cells, words = matrix_text(expand(matrix(tmp_path, text + rule)))
    assert cells == ["decode/bf16/kv-bf16/h32x8x128/contiguous/causal/neox/plain/b1q1k8"]
    assert [line.partition(", digest")[0] for line in words] == [
        "m: 1 cell of 8 combinations",
        "  forbidden 4: never",
        "  skipped 2: shape page has no page in kv_layout=contiguous",
        "  skipped 1: the tree mask and the feature speculative_tree come together or not at all",
        "  in no cell: dtype fp16: forbidden: never",
        "  in no cell: mask tree: no combination applies; for one, the tree mask and the feature speculative_tree "
        "come together or not at all",
        "  in no cell: shape {batch: 1, q_len: 1, kv_len: page}: shape page has no page in kv_layout=contiguous",
    ]


@pytest.mark.parametrize(("name", "least", "most"), [("smoke", 12, 24), ("release", 300, 600)])
def test_shipped_matrices(name: str, least: int, most: int) -> None:
    plan = expand(load(name))
    assert least <= len(plan.cells) <= most
    assert not plan.uncovered
    assert all(
        cell.shape.batch * cell.heads.q * cell.shape.q_len * cell.shape.kv_len * 4 <= 2 << 30 for cell in plan.cells
    )
    assert expand(load(name)) == plan
