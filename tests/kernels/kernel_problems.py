"""Problems to test with: a base, and what differs from it."""

from dataclasses import replace
from typing import Any

from kaudit_kernels.problem import Problem

BASE = Problem(
    phase="decode",
    dtype="bf16",
    weight_dtype="bf16",
    kv_dtype="bf16",
    q_heads=32,
    kv_heads=8,
    head_dim=128,
    v_head_dim=128,
    kv_layout="paged",
    page_size=16,
    mask="causal",
    window=0,
    rope="neox",
    rope_scaling="none",
    rope_offset=0,
    features=frozenset(),
    batch=8,
    q_len=1,
    kv_len=4096,
    skew=False,
    sm=90,
    sm_count=132,
)
"""A decode on an H200 that every fast path takes."""

SMALL = replace(
    BASE,
    dtype="fp32",
    weight_dtype="fp32",
    kv_dtype="fp32",
    q_heads=4,
    kv_heads=2,
    head_dim=16,
    v_head_dim=16,
    batch=2,
    sm=0,
    sm_count=0,
)
"""Small enough for a CPU."""


def but(base: Problem, **changes: Any) -> Problem:
    """The base with changes; `dtype` brings its kv_dtype and weight_dtype, `head_dim` its v_head_dim along."""
    if "dtype" in changes:
        changes.setdefault("kv_dtype", changes["dtype"])
        changes.setdefault("weight_dtype", changes["dtype"])
    if "head_dim" in changes:
        changes.setdefault("v_head_dim", changes["head_dim"])
    if changes.get("kv_layout", "paged") != "paged":
        changes.setdefault("page_size", 0)
    if "features" in changes:
        changes["features"] = frozenset(changes["features"].split())
    return replace(base, **changes)


def decode(kv_len: int, **changes: Any) -> dict[str, Any]:
    return {"phase": "decode", "q_len": 1, "kv_len": kv_len, **changes}


def chunk(q_len: int, kv_len: int, **changes: Any) -> dict[str, Any]:
    return {"phase": "chunked_prefill", "q_len": q_len, "kv_len": kv_len, **changes}


def prefill(length: int, **changes: Any) -> dict[str, Any]:
    return {"phase": "prefill", "q_len": length, "kv_len": length, **changes}


def title(changes: dict[str, Any]) -> str:
    """A test id."""
    return "-".join(f"{name}={value}" for name, value in changes.items())
