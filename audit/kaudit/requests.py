"""How many tokens each request of a cell's batch brings, and has: what skew, a mixed phase and features come to."""

from kaudit.cell import Cell, Feature, Phase, Shape


def kv_lens(cell: Cell) -> list[int]:
    """KV tokens of each request, the new ones included; `vacant`: the last one has none, old or new."""
    return [kv_len for _, kv_len in lens(cell.phase, cell.features, cell.shape)]


def q_lens(cell: Cell) -> list[int]:
    """New tokens of each request. Mixed: the first half of the requests bring a chunk, the others one token.

    `idle`: the last one brings none.
    """
    return [q_len for q_len, _ in lens(cell.phase, cell.features, cell.shape)]


def lens(phase: Phase, features: tuple[Feature, ...], shape: Shape) -> list[tuple[int, int]]:
    """q_lens and kv_lens of a cell, request by request: of what they depend on."""
    batch, longest = shape.batch, shape.kv_len
    kv_lens = [max(1, longest * (batch - i) // batch) if shape.skew else longest for i in range(batch)]
    if "vacant" in features:
        kv_lens[-1] = 0
    chunks = max(1, batch // 2) if phase == "mixed" else batch
    wanted = [shape.q_len if i < chunks else 1 for i in range(batch)]
    if "idle" in features:
        wanted[-1] = 0
    return [(min(q_len, kv_len), kv_len) for q_len, kv_len in zip(wanted, kv_lens, strict=True)]
