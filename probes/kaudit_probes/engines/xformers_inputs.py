"""A cell as xFormers' inputs: its tensors, and its mask and lengths as an attention bias, aligned bottom-right."""

from typing import Any

from kaudit.cell import Cell
from kaudit.requests import kv_lens, q_lens
from kaudit_probes.engines.batches import DTYPES, Pages, normal


def inputs_of(cell: Cell, device: str) -> Any:
    """q: [batch, q_len, kv_heads, group, dim], k: [batch, kv_len, kv_heads, group, dim], v likewise; without `group`
    where it is 1. The heads of a group share their keys by a stride of 0. Packed requests are a batch of one."""
    from xformers.ops.fmha.common import Inputs

    heads, dtype, group = cell.heads, DTYPES[cell.dtype], cell.heads.q // cell.heads.kv
    packed = cell.layout.kind != "contiguous" or len(set(kv_lens(cell))) > 1
    q_rows = (1, sum(q_lens(cell))) if packed else (cell.shape.batch, cell.shape.q_len)
    rows = (1, kv_rows(cell)) if packed else (cell.shape.batch, cell.shape.kv_len)
    q = normal(device, dtype, *q_rows, heads.kv, group, heads.dim)
    k = normal(device, dtype, *rows, heads.kv, 1, heads.dim).expand(*rows, heads.kv, group, heads.dim)
    v = normal(device, dtype, *rows, heads.kv, 1, heads.v_dim).expand(*rows, heads.kv, group, heads.v_dim)
    if group == 1:
        q, k, v = (tensor.squeeze(3) for tensor in (q, k, v))
    return Inputs(q, k, v, attn_bias=bias(cell, device))


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
