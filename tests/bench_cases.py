"""What bench_kernels.py times, in parts: whatever a comment in the catalogue or beside a launch gives a figure of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kaudit_kernels.projections import tile_of
from kaudit_kernels.triton.launch_prefill import TILES


@dataclass(frozen=True)
class Variant:
    """A kernel that is launched otherwise than it would launch itself."""

    kernel: str
    what: str
    options: Mapping[str, object] = field(compare=False)


@dataclass(frozen=True)
class Case:
    """An op of a cell, by every kernel that can serve it there.

    `bar` and `aim` are in `unit`: of attention K and V read once (TB/s) or the products of the causal half (TFLOP/s),
    of a projection its products (TFLOP/s), of any op what it reads and writes (TB/s), also as a share of a copy of as
    many bytes (`of copy`).
    """

    op: str
    cell: str
    unit: str
    bar: float | None = None
    aim: float | None = None
    vocabulary: int = 32_768
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class Threshold:
    """Cells on both sides of what a kernel's `worth` says of these axes: there, is it faster than the next?"""

    op: str
    kernel: str
    axes: tuple[str, ...]
    cells: tuple[str, ...]
    vocabularies: tuple[int, ...] = (32_768,)
    """With each of which each cell is timed."""


@dataclass(frozen=True)
class Graph:
    """A decode step as one CUDA graph; `bar`: the most us between two of its kernels."""

    cell: str
    bar: float


PROJECTIONS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


def _prefill(layout: str, heads: str = "h32x8x128", length: int = 4096) -> str:
    return f"prefill/bf16/kv-bf16/{heads}/{layout}/causal/none/plain/b4q{length}k{length}"


def _decode(
    batch: int,
    kv_len: int,
    kv_dtype: str = "bf16",
    *,
    heads: str = "h32x8x128",
    q_len: int = 1,
    page: int = 16,
    features: str = "plain",
) -> str:
    return f"decode/bf16/kv-{kv_dtype}/{heads}/paged{page}/causal/none/{features}/b{batch}q{q_len}k{kv_len}"


def _rows(kv_dtype: str = "bf16", dtype: str = "bf16") -> str:
    return f"prefill/{dtype}/kv-{kv_dtype}/h32x8x128/paged16/causal/neox/plain/b1q8192k8192"


def _tokens(batch: int, heads: str = "h32x8x128", features: str = "plain", dtype: str = "bf16") -> str:
    """A decode of so many tokens, in which attention is not what is timed."""
    return f"decode/{dtype}/kv-{dtype}/{heads}/paged16/causal/neox/{features}/b{batch}q1k64"


_SKINNY = tuple(
    Variant("skinny_gemm", f"as for {width} columns", {"tile": tile_of(width)}) for width in (4096, 6144, 16384)
)
_NARROW = {
    "qkv_proj": ("h12x2x128", "h16x2x128", "h20x2x128", "h28x2x128", "h83x1x50"),
    "gate_up_proj": ("h2x2x128", "h4x4x128", "h8x8x128"),
    "o_proj": ("h16x8x128", "h20x4x128", "h24x8x128", "h32x8x128", "h83x1x50"),
    "down_proj": ("h16x8x128", "h20x4x128", "h24x8x128", "h32x8x128"),
}
"""Heads with which a projection writes fewer than 4096 columns or not many more, a multiple of 8 or not."""
_WRITES = {"qkv_proj": "qkv_width", "gate_up_proj": "gate_up_width", "o_proj": "hidden", "down_proj": "hidden"}
_READS = {"qkv_proj": "hidden", "gate_up_proj": "hidden", "o_proj": "attention_width", "down_proj": "intermediate"}

PARTS: dict[str, tuple[Case | Threshold | Graph, ...]] = {
    "prefill": (
        Case("attention", _prefill("contiguous"), "TFLOP/s", 450, 573),
        Case("attention", _prefill("paged16"), "TFLOP/s"),
        Case("attention", _prefill("paged128"), "TFLOP/s"),
        Case("attention", _prefill("contiguous", "h32x8x64"), "TFLOP/s"),
        *(
            Case(
                "attention",
                _prefill(layout, "h32x8x256"),
                "TFLOP/s",
                variants=(Variant("flash_prefill", "with the tile of a small SM", {"tile": TILES[256]}),),
            )
            for layout in ("contiguous", "paged64")
        ),
        Threshold(
            "attention",
            "flash_prefill_tma",
            ("query_rows",),
            tuple(
                f"chunked_prefill/bf16/kv-bf16/h32x8x128/contiguous/causal/none/plain/b{batch}q{q_len}k4096"
                for batch in (1, 8)
                for q_len in (16, 32, 64)
            ),
        ),
        Threshold(
            "attention",
            "flash_prefill_tma",
            ("head_dim",),
            tuple(_prefill("contiguous", f"h32x8x{dim}", length) for length in (1024, 4096) for dim in (64, 128, 256)),
        ),
    ),
    "decode": (
        Case("attention", _decode(64, 4096), "TB/s", 3.7, 4.0),
        Case(
            "attention",
            _decode(64, 4096, "fp8_e4m3"),
            "TB/s",
            3.0,
            3.4,
            variants=(
                Variant("warp_decode", "in twice as many parts", {"fill": 6}),
                Variant("warp_decode", "one head a block", {"heads": 1}),
            ),
        ),
        Case("attention", _decode(64, 4096, "int8"), "TB/s"),
        Case("attention", _decode(1, 131072), "TB/s", 3.2),
        Case("attention", _decode(8, 4096), "TB/s"),
        Case("attention", _decode(16, 4096, features="prefix_share"), "TB/s"),
        Threshold(
            "attention",
            "warp_decode",
            ("kv_dtype",),
            tuple(
                _decode(batch, kv_len, kv_dtype)
                for kv_dtype in ("bf16", "fp8_e4m3", "fp8_e5m2", "int8")
                for batch, kv_len in ((64, 4096), (1, 131072))
            ),
        ),
        Threshold(
            "attention",
            "split_kv_decode",
            ("query_rows",),
            tuple(
                _decode(batch, 4096, kv_dtype, heads=heads, q_len=q_len, page=page)
                for batch, kv_dtype, page in (
                    (1, "bf16", 16),
                    (1, "bf16", 128),
                    (16, "bf16", 16),
                    (16, "bf16", 128),
                    (16, "fp8_e4m3", 16),
                )
                for heads, q_len in (("h32x1x128", 2), ("h32x1x128", 4), ("h32x1x128", 8), ("h48x1x128", 8))
            ),
        ),
    ),
    "cascade": (
        Threshold(
            "attention",
            "cascade_decode",
            ("requests", "shared_mib", "kv_dtype"),
            tuple(
                _decode(batch, 2 * prefix + 16, kv_dtype, heads=heads, features="prefix_share")
                for kv_dtype, heads, batches, prefixes in (
                    ("bf16", "h32x8x128", (4, 8, 16, 64), (1024, 2048, 4096, 16_384)),
                    # What one GPU of eight has of those heads: 512 bytes a token.
                    ("bf16", "h8x1x128", (8, 16, 64), (1024, 4096, 16_384, 32_768)),
                    ("fp8_e4m3", "h32x8x128", (8, 16, 64), (1024, 4096, 16_384)),
                )
                for batch in batches
                for prefix in prefixes
            ),
        ),
    ),
    "tokens": (
        Case("rms_norm", _rows(), "of copy"),
        Case("add_rms_norm", _rows(), "of copy", 0.85),
        Case("silu_mul", _rows(), "of copy", 0.85),
        Case("rope_kv_write", _rows(), "of copy", 0.85),
        Case("rope_kv_write", _rows("fp8_e4m3"), "of copy"),
    ),
    "projections": (
        *(Case(op, _tokens(1), "TB/s") for op in PROJECTIONS),
        *(Case(op, _tokens(16), "TB/s", variants=_SKINNY) for op in PROJECTIONS),
        *(Case(op, _tokens(16, "h56x8x128"), "TB/s", variants=_SKINNY) for op in ("gate_up_proj", "down_proj")),
        *(Case(op, _tokens(batch, dtype="fp8_e4m3"), "TB/s") for op in PROJECTIONS for batch in (16, 64)),
        *(Case(op, _rows("fp8_e4m3", "fp8_e4m3"), "TFLOP/s") for op in PROJECTIONS),
        *(
            Threshold(op, "skinny_gemm", ("tokens",), tuple(_tokens(batch) for batch in (16, 32, 64)))
            for op in PROJECTIONS
        ),
        *(
            Threshold(
                op,
                "skinny_gemm",
                (_READS[op],),
                tuple(_tokens(batch, heads) for batch in (1, 16) for heads in ("h32x8x128", "h40x8x128", "h56x8x128"))
                if op == "down_proj"  # which reads twice the hidden state
                else tuple(_tokens(batch, heads) for batch in (1, 16) for heads in ("h64x8x128", "h80x8x128")),
            )
            for op in PROJECTIONS
        ),
        *(
            Threshold(op, "skinny_gemm", (_WRITES[op],), tuple(_tokens(16, heads) for heads in _NARROW[op]))
            for op in PROJECTIONS
        ),
    ),
    "logits": (
        *(
            Case("logits_mask", _tokens(64, features="grammar"), "of copy", vocabulary=vocabulary)
            for vocabulary in (32_768, 131_072, 151_936, 262_144)
        ),
        *(
            Case("sample", _tokens(batch, features=features), "TB/s", vocabulary=vocabulary)
            for batch in (1, 64)
            for features in ("plain", "top_k+top_p")
            for vocabulary in (32_768, 131_072, 151_936, 262_144)
        ),
        *(
            Threshold(
                "sample",
                "fused_sample",
                ("vocabulary",),
                tuple(_tokens(batch, features=features) for batch in (1, 8, 16, 32)),
                (32_768, 65_536, 131_072, 151_936, 262_144),
            )
            for features in ("plain", "top_k+top_p")
        ),
    ),
    "graph": tuple(
        Graph(f"decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/cuda_graph/b{batch}q1k1024", bar=5.0)
        for batch in (8, 64)
    ),
}
"""By name, what can be timed alone."""
