"""Why FlashInfer's `auto` took FA2. Its predicates return bare booleans, so their conditions are mirrored here.

Mirrored from FlashInfer 0.7.2: flashinfer/utils.py (is_sm90a_supported, is_fa3_backend_supported,
is_fa3_prefill_head_dim_supported) and flashinfer/decode.py (BatchDecodeWithPagedKVCacheWrapper._plan_impl). A mirrored
condition is given as the reason only where FlashInfer did turn FA3 down, or says nothing of its choice; where it did
and none explains it, that is said instead.
"""

from collections.abc import Iterator

import torch

from kaudit.observation import Reason, Rejection, Said, Unmet
from kaudit_probes.engines import mirrored
from kaudit_probes.engines.flashinfer_problem import FA3_HEAD_DIMS, Planned, Problem

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)

_UNEXPLAINED = Said("kaudit: FlashInfer turned FA3 down, and none of the conditions that kaudit mirrors explains it")
_STICKY = Said("kaudit: FA3's conditions hold; a paged prefill wrapper keeps the back end that its first plan chose")


def turned_down(call: Planned, sm: int) -> tuple[Rejection, ...]:
    """FA3, where FlashInfer chose and says that it took FA2. `sm`: compute capability, 90 is 9.0.

    Where it says nothing, too, if conditions of it are unmet: the kernels have to bear that out.
    """
    answer = call.word or call.asked
    if call.problem.backend != "auto" or answer not in ("fa2", None):
        return ()
    reasons: tuple[Reason, ...] = tuple(unmet(call.problem, sm))
    if not reasons and answer:
        reasons = (_STICKY if call.reused else _UNEXPLAINED,)
    return (Rejection("flashinfer:fa3", "asked", reasons),) if reasons else ()


def unmet(problem: Problem, sm: int) -> Iterator[Unmet]:
    """The conditions of FA3 that the problem does not meet."""
    q, kv = _short(problem.q_dtype), _short(problem.kv_dtype)
    if sm // 10 != 9:
        yield mirrored("gpu", f"sm_{sm}", "sm_90, whose instructions FA3 is written in")
    if problem.custom_mask:
        yield mirrored("mask", "custom", "none, causal or a window")
    if problem.pos_encoding != "NONE":
        yield mirrored("pos_encoding_mode", problem.pos_encoding, "NONE: rotate before the attention")
    if problem.kv_dtype in _FP8 and problem.q_dtype not in _FP8:
        yield mirrored("kv_dtype", kv, f"an fp8 query too, has {q}")
    if problem.entry == "decode" and not {problem.q_dtype, problem.kv_dtype} & set(_FP8):
        yield mirrored("wrapper", f"decode of {q}", "fp8 Q or KV, else its auto never asks for FA3")
    if problem.entry == "single_decode":
        yield mirrored("entry", "single_decode_with_kv_cache", "single_prefill_with_kv_cache, which chooses")
    dims = problem.head_dim, problem.v_head_dim
    if dims not in FA3_HEAD_DIMS:
        yield mirrored("head_dim", f"{dims[0]}x{dims[1]}", "64, 128 or 256 for K and V alike, or 192x128")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
