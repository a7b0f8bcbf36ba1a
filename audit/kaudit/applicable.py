"""Which combinations of axis values mean something at all, before any engine is asked."""

from kaudit.cell import Cell


def inapplicable(cell: Cell) -> str | None:
    """Why the combination contradicts itself, or None. Such a cell enters the table as Skipped with this reason."""
    q_len, kv_len, batch = cell.shape.q_len, cell.shape.kv_len, cell.shape.batch
    match cell.phase:
        case "prefill" if q_len != kv_len:
            return f"prefill has no earlier tokens, yet q_len={q_len} and kv_len={kv_len} (chunked_prefill has)"
        case "chunked_prefill" | "mixed" if not 1 < q_len < kv_len:
            return f"{cell.phase} adds a chunk to earlier tokens, needs 1 < q_len < kv_len, has {q_len} and {kv_len}"
        case "mixed" if batch < 2:
            return f"mixed needs a chunk and a decode in one batch, has batch={batch}"
        case "decode" if q_len > kv_len:
            return f"decode sees its own tokens, needs q_len <= kv_len, has {q_len} and {kv_len}"
    if cell.kv_dtype not in (cell.dtype, "fp8_e4m3", "fp8_e5m2", "int8"):
        return f"kv_dtype={cell.kv_dtype} is neither the model's {cell.dtype} nor a quantised type"
    if (cell.mask.kind == "tree") != ("speculative_tree" in cell.features):
        return "the tree mask and the feature speculative_tree come together or not at all"
    if cell.mask.kind == "tree" and cell.phase != "decode":
        return f"a speculative tree is verified in decode, not in {cell.phase}"
    if "prefix_share" in cell.features and (cell.layout.kind != "paged" or cell.phase == "prefill"):
        return "prefix_share shares pages of earlier tokens, needs a paged layout and a phase that has them"
    return None
