"""A cell's mask and lengths as xFormers' attention biases, all aligned bottom-right."""

from typing import Any

from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines.batches import Pages


def kv_rows(cell: Cell) -> int:
    """Rows of packed K and V: the tokens of a ragged cell, whole pages, or every request padded to the longest."""
    match cell.layout.kind:
        case "ragged":
            return sum(kv_lens(cell))
        case "paged":
            return len(Pages.of(kv_lens(cell), cell.layout.page).indices) * cell.layout.page
        case "contiguous":
            return cell.shape.batch * cell.shape.kv_len


def bias(cell: Cell, device: str) -> Any:
    from xformers.ops.fmha import attn_bias as biases

    q, kv, window = q_lens(cell), kv_lens(cell), cell.mask.window
    match cell.layout.kind:
        case "ragged":
            blocks = biases.BlockDiagonalMask.from_seqlens(q, kv, device=device)
            match cell.mask.kind:
                case "window":
                    return blocks.make_local_attention_from_bottomright(window)
                case "causal":
                    return blocks.make_causal_from_bottomright()
            return blocks
        case "paged":
            causal = biases.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask
            kind = causal if cell.mask.kind == "causal" else biases.PagedBlockDiagonalPaddedKeysMask
            table = Pages.of(kv, cell.layout.page).table().to(device)
            return kind.from_seqlens(q, kv, table, cell.layout.page, device=device)
        case "contiguous" if len(set(kv)) > 1:
            padding = cell.shape.kv_len
            if window:
                local = biases.BlockDiagonalCausalLocalAttentionPaddedKeysMask
                return local.from_seqlens_local(q, padding, kv, window).to(device)
            causal = biases.BlockDiagonalCausalWithOffsetPaddedKeysMask
            kind = causal if cell.mask.kind == "causal" else biases.BlockDiagonalPaddedKeysMask
            return kind.from_seqlens(q, padding, kv, device=device)
        case "contiguous":
            match cell.mask.kind:
                case "window":
                    return biases.LowerTriangularFromBottomRightLocalAttentionMask(window)
                case "causal":
                    return biases.LowerTriangularFromBottomRightMask()
            return None
