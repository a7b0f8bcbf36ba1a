"""What is given to attention libraries of a cell, written out: the adapters' own tests take their masks from here."""

import pytest
import torch

from kaudit.cell import Cell, Mask
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines.batches import Pages, normal, offsets, visible


@pytest.mark.parametrize(
    ("mask", "q_len", "kv_len", "rows"),
    [
        ("none", 2, 3, ["111", "111"]),
        ("causal", 3, 3, ["100", "110", "111"]),
        ("causal", 2, 5, ["11110", "11111"]),  # bottom-right
        ("window2", 3, 5, ["01100", "00110", "00011"]),  # the query's own key is one of the two
        ("window9", 2, 4, ["1110", "1111"]),
        ("tree", 4, 5, ["11000", "11100", "11010", "11101"]),  # the fourth node is a child of the second
    ],
)
def test_which_keys_a_query_sees(mask: str, q_len: int, kv_len: int, rows: list[str]) -> None:
    found = visible(Mask.parse(mask), q_len, kv_len)
    assert ["".join(str(int(sees)) for sees in row) for row in found.tolist()] == rows


def test_under_a_custom_mask_a_query_sees_its_own_key_and_not_all() -> None:
    found = visible(Mask.parse("custom"), 16, 64)
    assert found.diagonal(48).all()
    assert 0.3 < found.float().mean() < 0.7
    assert torch.equal(found, visible(Mask.parse("custom"), 16, 64))


def lens(phase: str, shape: str) -> tuple[list[int], list[int]]:
    cell = Cell.parse(f"{phase}/bf16/kv-bf16/h4x4x64/ragged/causal/none/plain/{shape}")
    return q_lens(cell), kv_lens(cell)


def test_lengths_of_requests() -> None:
    assert lens("decode", "b3q1k8") == ([1, 1, 1], [8, 8, 8])
    assert lens("decode", "b4q4k8skew") == ([4, 4, 4, 2], [8, 6, 4, 2])
    assert lens("prefill", "b2q8k8skew") == ([8, 4], [8, 4])
    assert lens("mixed", "b3q4k8") == ([4, 1, 1], [8, 8, 8])
    assert lens("decode", "b8q1k2skew")[1] == [2, 1, 1, 1, 1, 1, 1, 1]
    assert offsets([3, 1]).tolist() == [0, 3, 4]


def test_no_two_requests_share_a_page() -> None:
    pages = Pages.of([33, 16, 1], 16)
    assert pages.starts.tolist() == [0, 3, 4, 5]
    assert sorted(pages.indices.tolist()) == [0, 1, 2, 3, 4]
    assert pages.last_lens.tolist() == [1, 16, 1]
    table = pages.table()
    assert table.shape == (3, 3)
    assert table[0].tolist() == pages.indices[:3].tolist()
    assert table[1].tolist() == [pages.indices[3].item(), 0, 0]


def test_values_are_the_same_in_every_run_and_differ_by_seed() -> None:
    assert torch.equal(normal("cpu", torch.float32, 4), normal("cpu", torch.float32, 4))
    assert not torch.equal(normal("cpu", torch.float32, 4), normal("cpu", torch.float32, 4, seed=1))
