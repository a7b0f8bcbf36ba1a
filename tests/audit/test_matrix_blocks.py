"""A matrix of several blocks: what models are served with in full, the odd in pairs."""

from pathlib import Path

import pytest

from kaudit.errors import UserError
from kaudit.matrix import Plan, expand, load

BLOCKS = """
axes: {phase: [decode], dtype: [bf16, fp16], mask: [causal], features: [plain]}
also:
  - axes: {phase: [decode], dtype: [bf16], mask: [causal, window64], features: [plain, speculative_tree]}
  - {cover: 2, axes: {phase: [prefill], dtype: [fp32]}}
forbid:
  - {when: {dtype: fp16, phase: decode}, because: not today}
"""


def plan(folder: Path, text: str) -> Plan:
    path = folder / "blocks.yaml"
    path.write_text(text)
    return expand(load(str(path)))


def test_the_cells_of_all_blocks_stand_once(tmp_path: Path) -> None:
    found = plan(tmp_path, BLOCKS)
    assert [(cell.phase, cell.dtype, str(cell.mask)) for cell in found.cells] == [
        ("decode", "bf16", "causal"),
        ("decode", "bf16", "window64"),
        ("prefill", "fp32", "causal"),
    ]
    assert len(found.skipped) == 2
    assert found.product == 2 + 4 + 1
    assert found.forbidden == (("not today", 1),)


def test_what_one_block_leaves_uncovered_another_may_cover(tmp_path: Path) -> None:
    uncovered = {(missing.axis, missing.value) for missing in plan(tmp_path, BLOCKS).uncovered}
    assert uncovered == {("dtype", "fp16"), ("features", "speculative_tree")}
    more = BLOCKS.replace("forbid:", "  - axes: {dtype: [fp16]}\nforbid:")
    assert {missing.axis for missing in plan(tmp_path, more).uncovered} == {"features"}


def test_a_pattern_is_stale_only_if_it_fits_no_block(tmp_path: Path) -> None:
    expect = "expect: [{when: {dtype: DTYPE}, path: eager}]\n"
    plan(tmp_path, BLOCKS + expect.replace("DTYPE", "fp32"))
    with pytest.raises(UserError, match=r"blocks.yaml:8:\d+: dtype .* fits no value"):
        plan(tmp_path, BLOCKS + expect.replace("DTYPE", "fp8_e4m3"))


def test_a_fault_in_a_block_stands_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"blocks.yaml:4:\d+: .*bf17"):
        plan(tmp_path, BLOCKS.replace("dtype: [bf16], mask: [causal, window64]", "dtype: [bf17], mask: [causal]"))


def test_the_limit_is_on_the_full_products_of_all_blocks(tmp_path: Path) -> None:
    plan(tmp_path, BLOCKS)
    with pytest.raises(UserError, match="the full product has 6 combinations, the limit is 6"):
        expand(load(str(tmp_path / "blocks.yaml")), max_cells=6)
    assert expand(load(str(tmp_path / "blocks.yaml")), max_cells=7).product == 7
