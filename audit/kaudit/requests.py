"""How many tokens each request of a cell's batch brings, and has: what skew, a mixed phase and features come to."""

from kaudit.cell import Cell


def kv_lens(cell: Cell) -> list[int]:
    """KV tokens of each request, the new ones included; `vacant`: the last one has none, old or new."""
    batch, kv_len = cell.shape.batch, cell.shape.kv_len
    lens = [max(1, kv_len * (batch - i) // batch) if cell.shape.skew else kv_len for i in range(batch)]
    return [*lens[:-1], 0] if "vacant" in cell.features else lens


def q_lens(cell: Cell) -> list[int]:
    """New tokens of each request. Mixed: the first half of the requests bring a chunk, the others one token.

    `idle`: the last one brings none.
    """
    chunks = max(1, cell.shape.batch // 2) if cell.phase == "mixed" else cell.shape.batch
    wanted = [cell.shape.q_len if i < chunks else 1 for i in range(cell.shape.batch)]
    if "idle" in cell.features:
        wanted[-1] = 0
    return [min(q_len, kv_len) for q_len, kv_len in zip(wanted, kv_lens(cell), strict=True)]
