"""How large a batch is."""

from collections.abc import Callable, Sequence

from fakes.drive_sweep import cell
from kaudit.cell import Cell
from kaudit.plan import MOST_CELLS, Batches


def sizes(cells: Sequence[Cell], cost: Callable[[int], float], hosts: int = 1, each: int | None = None) -> list[int]:
    """Cells per batch, if so many cells take so many seconds. All are handed out, in their order."""
    batches = Batches(cells, hosts, each)
    found, handed = [], []
    while batches:
        batch = batches.take()
        found.append(len(batch))
        handed += batch
        batches.took(len(batch), cost(len(batch)))
    assert handed == [one.id for one in cells]
    return found


SMALL = [cell(1, kv_len) for kv_len in range(1, 2001)]


def test_small_cells_come_to_share_large_batches() -> None:
    found = sizes(SMALL, lambda cells: 0.001 * cells)
    assert found == [2, 8, 16, 32, 64, 128, 256, 512, 512, 470]
    assert max(found) == MOST_CELLS


def test_cells_that_compile_for_seconds_share_small_ones() -> None:
    assert sizes(SMALL[:60], lambda cells: 2.0 * cells) == [2, 8, 8, 8, 8, 8, 8, 8, 2]


def test_a_batch_grows_to_the_seconds_it_may_take() -> None:
    assert sizes(SMALL[:300], lambda cells: 0.05 * cells)[:6] == [2, 8, 16, 32, 64, 80]


def test_a_batch_has_a_most_of_bytes() -> None:
    large = [cell(64, 65536 + number) for number in range(3)]  # 4.3 GB of K and V each
    assert sizes([SMALL[0], *large], lambda _: 1.0) == [1, 1, 1, 1]


def test_several_hosts_come_to_an_end_together() -> None:
    found = sizes(SMALL[:540], lambda cells: 0.001 * cells, hosts=2)
    assert max(found) <= 128
    assert found[-1] <= 8


def test_isolated_cells_are_handed_out_one_by_one() -> None:
    assert sizes(SMALL[:5], lambda _: 0.0, each=1) == [1] * 5
