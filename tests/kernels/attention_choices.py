"""Problems of attention, the kernel that serves each on an imagined H200 or CPU, and why each faster one does not."""

from typing import Any

from kernel_problems import chunk, decode, prefill

UNSHARED = {"cascade_decode": ["shared_mib=0, pays with at least 16"]}
BOTH_BEFORE = UNSHARED | {"warp_decode": ["kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8"]}


def _unshared(kv_dtype: str) -> dict[str, list[str]]:
    """As UNSHARED, with a cache of 8 bits."""
    return {"cascade_decode": [*UNSHARED["cascade_decode"], f"kv_dtype={kv_dtype}, pays with one of fp16, bf16"]}


ATTENTION: list[tuple[dict[str, Any], str, dict[str, list[str]]]] = [
    (decode(4096), "split_kv_decode", BOTH_BEFORE),
    (decode(512, mask="none"), "split_kv_decode", BOTH_BEFORE),
    (
        decode(4096, mask="window", window=512, page_size=8),
        "split_kv_decode",
        {
            "cascade_decode": [
                "mask=window, needs one of none, causal, tree",
                "shared_mib=0, pays with at least 16",
            ],
            "warp_decode": ["kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8"],
        },
    ),
    (decode(8193, features="prefix_share grammar"), "cascade_decode", {}),
    (
        decode(8192, features="prefix_share", batch=7),  # a page less, and a request
        "split_kv_decode",
        BOTH_BEFORE | {"cascade_decode": ["requests=7, pays with at least 8", "shared_mib=15, pays with at least 16"]},
    ),
    (
        decode(16_385, features="prefix_share", kv_dtype="fp8_e4m3"),  # as many bytes as are enough of bf16
        "warp_decode",
        {"cascade_decode": ["kv_dtype=fp8_e4m3, pays with one of fp16, bf16"]},
    ),
    (decode(4096, kv_dtype="int8", page_size=1, features="sinks softcap"), "warp_decode", _unshared("int8")),
    (
        decode(4096, kv_dtype="fp8_e4m3", head_dim=80),
        "split_kv_decode",
        _unshared("fp8_e4m3") | {"warp_decode": ["head_dim=80, needs one of 64, 128, 256"]},
    ),
    (
        decode(4096, q_heads=48, kv_heads=1),
        "split_kv_decode",
        UNSHARED
        | {
            "warp_decode": [
                "query_rows=48, needs at most 8",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ]
        },
    ),
    (
        {"q_len": 8, "kv_len": 4096, "mask": "tree", "features": "speculative_tree", "kv_dtype": "fp8_e5m2"},
        "split_kv_decode",
        _unshared("fp8_e5m2")
        | {
            "warp_decode": [
                "query_rows=32, needs at most 8",
                "mask=tree, needs one of none, causal, window",
                "features=speculative_tree, needs none of these",
            ]
        },
    ),
    (
        {"q_len": 8, "kv_len": 4096, "q_heads": 48, "kv_heads": 1},
        "flash_prefill",
        UNSHARED
        | {
            "warp_decode": [
                "query_rows=384, needs at most 8",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": ["query_rows=384, pays with at most 256"],
            "flash_prefill_tma": ["page_size=16, needs a multiple of 128 for head_dim=128"],
        },
    ),
    (  # flash_prefill_tma would take it: a tile of 256 rows that splits no keys
        {"q_len": 8, "kv_len": 131_072, "q_heads": 32, "kv_heads": 1, "page_size": 128, "batch": 1},
        "split_kv_decode",
        UNSHARED
        | {
            "cascade_decode": ["requests=1, pays with at least 8", *UNSHARED["cascade_decode"]],
            "warp_decode": [
                "query_rows=256, needs at most 8",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
        },
    ),
    (
        decode(64, batch=4097, kv_dtype="int8"),
        "flash_prefill",
        {
            "cascade_decode": ["batch=4097, needs at most 4096", *_unshared("int8")["cascade_decode"]],
            "warp_decode": ["batch=4097, needs at most 4096"],
            "split_kv_decode": ["batch=4097, needs at most 4096"],
            "flash_prefill_tma": [
                "kv_dtype=int8, needs the same as dtype=bf16",
                "page_size=16, needs a multiple of 128 for head_dim=128",
                "query_rows=4, pays with at least 128",
            ],
        },
    ),
    (
        chunk(128, 4096, kv_layout="ragged"),
        "flash_prefill_tma",
        {
            "cascade_decode": [
                "kv_layout=ragged, needs paged",
                "q_len=128, needs at most 8",
                "shared_mib=0, pays with at least 16",
            ],
            "warp_decode": [
                "query_rows=512, needs at most 8",
                "kv_layout=ragged, needs paged",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": [
                "kv_layout=ragged, needs paged",
                "q_len=128, needs at most 8",
                "query_rows=512, pays with at most 256",
            ],
        },
    ),
    (
        decode(4096, kv_layout="contiguous"),
        "flash_prefill",
        {
            "cascade_decode": ["kv_layout=contiguous, needs paged", "shared_mib=0, pays with at least 16"],
            "warp_decode": [
                "kv_layout=contiguous, needs paged",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": ["kv_layout=contiguous, needs paged"],
            "flash_prefill_tma": ["query_rows=4, pays with at least 128"],
        },
    ),
    (
        decode(4096, kv_dtype="fp8_e4m3", sm=86),
        "eager",
        {
            "cascade_decode": [
                "sm=86, needs at least 89 for kv_dtype=fp8_e4m3",
                "shared_mib=0, pays with at least 16",
                "kv_dtype=fp8_e4m3, pays with one of fp16, bf16",
            ],
            "warp_decode": ["sm=86, needs at least 89 for kv_dtype=fp8_e4m3"],
            "split_kv_decode": ["sm=86, needs at least 89 for kv_dtype=fp8_e4m3"],
            "flash_prefill_tma": [
                "sm=86, needs 90",
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "page_size=16, needs a multiple of 128 for head_dim=128",
                "query_rows=4, pays with at least 128",
            ],
            "flash_prefill": ["sm=86, needs at least 89 for kv_dtype=fp8_e4m3"],
            "fused_sdpa": [
                "sm=86, needs at most 0",
                "kv_dtype=fp8_e4m3, needs the same as dtype=bf16",
                "kv_layout=paged, needs one of contiguous, ragged",
            ],
        },
    ),
    (
        decode(4096, kv_dtype="fp8_e5m2", sm=86),
        "split_kv_decode",
        _unshared("fp8_e5m2") | {"warp_decode": ["sm=86, needs at least 89 for kv_dtype=fp8_e5m2"]},
    ),
    (
        prefill(64, sm=0, sm_count=0, kv_layout="contiguous"),
        "fused_sdpa",
        {
            "cascade_decode": [
                "sm=0, needs at least 80",
                "kv_layout=contiguous, needs paged",
                "q_len=64, needs at most 8",
                "shared_mib=0, pays with at least 16",
            ],
            "warp_decode": [
                "sm=0, needs at least 80",
                "query_rows=256, needs at most 8",
                "kv_layout=contiguous, needs paged",
                "kv_dtype=bf16, pays with one of fp8_e4m3, fp8_e5m2, int8",
            ],
            "split_kv_decode": [
                "sm=0, needs at least 80",
                "kv_layout=contiguous, needs paged",
                "q_len=64, needs at most 8",
            ],
            "flash_prefill_tma": ["sm=0, needs 90"],
            "flash_prefill": ["sm=0, needs at least 80"],
        },
    ),
]
