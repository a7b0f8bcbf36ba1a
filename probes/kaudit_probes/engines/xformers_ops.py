"""xFormers' ops: in which order it tries them, whether it has any, and what each lacks in its own words.

Its order is not one: few queries over many keys of shared heads are tried by other ops than the rest. So it is read
from xFormers itself, its private _dispatch_fw_priority_list(), and each order that cells can meet has a name.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit_probes.engines.torch_attention import SHORT_QUERY
from kaudit_probes.engines.xformers_inputs import inputs_of

# A cell for each order: where split K comes in, packed keys have another one than keys that are padded or paged.
_MEETING: Mapping[str, str] = {
    "attention": "prefill/fp16/kv-fp16/h1x1x64/contiguous/none/none/plain/b1q64k64",
    SHORT_QUERY: "decode/fp16/kv-fp16/h8x1x64/contiguous/none/none/plain/b1q1k4096",
    f"{SHORT_QUERY}_ragged": "decode/fp16/kv-fp16/h8x1x64/ragged/none/none/plain/b1q1k4096",
}

_SET = re.compile(r"\{([^{}]*)\}")
_UNBUILT = re.compile(r"wasn't buil[dt]\b")


def orders(device: str) -> dict[tuple[str, ...], str]:
    """Each order in which xFormers tries its ops, fastest first by its own word, with a name for it."""
    found: dict[tuple[str, ...], str] = {}
    for name, cell in _MEETING.items():
        found.setdefault(order(inputs_of(Cell.parse(cell), device)), name)
    return found


def order(inputs: Any) -> tuple[str, ...]:
    return tuple(map(name_of, tried(inputs)))


def tried(inputs: Any) -> Sequence[Any]:
    """The ops that xFormers tries for these inputs, one after another until one takes them."""
    from xformers.ops import fmha

    return tuple(fmha.dispatch._dispatch_fw_priority_list(inputs, False))


def name_of(op: Any) -> str:
    """`fa2F@2.5.7-pt` is fa2F, of the FlashAttention in torch."""
    return str(op.NAME).split("@")[0].removesuffix("-pt")


def reasons(op: Any, inputs: Any) -> list[str]:
    """Sets of dtypes in them come out in an order that changes from process to process: sorted."""
    return [_SET.sub(_sorted, text) for text in op.not_supported_reasons(inputs)]


def _sorted(members: re.Match[str]) -> str:
    return f"{{{', '.join(sorted(members[1].split(', ')))}}}"


def check_loads(version: str) -> None:
    """Raises UserError where xFormers' compiled part does not load, or was built without CUDA: by what xFormers itself
    looks at before an op takes a tensor on a GPU, which need not be there."""
    from xformers import _cpp_lib

    if not getattr(_cpp_lib, "_built_with_cuda", True):
        raise _unbuilt(version, _load_failure() or ["it was built without CUDA"])


def check_built(version: str, device: str) -> None:
    """Raises UserError where xFormers has no op that was built for this torch: it imports, and refuses every cell."""
    from xformers.ops import fmha

    given = inputs_of(Cell.parse(_MEETING["attention"]), device)
    lacking = {name_of(op): reasons(op, given) for op in fmha.ALL_FW_OPS}
    if not all(any(map(_UNBUILT.search, texts)) for texts in lacking.values()):
        return
    raise _unbuilt(version, _load_failure() or [f"{name}: {', '.join(texts)}" for name, texts in lacking.items()])


def _unbuilt(version: str, why: Sequence[str]) -> UserError:
    return UserError(
        f"--engine xformers: no op of xformers {version} is built for torch {torch.__version__} ({'; '.join(why)}); "
        "install an xformers and a torch that fit each other where --python points"
    )


def _load_failure() -> list[str]:
    """What xFormers' compiled part was built for, and why that does not load; nothing if it does."""
    error = getattr(sys.modules.get("xformers._cpp_lib"), "_cpp_library_load_exception", None)
    built = getattr(getattr(error, "build_info", None), "torch_version", None)
    root = error
    while root is not None and root.__cause__ is not None:
        root = root.__cause__
    said = str(root).splitlines()[0] if root is not None else None
    return [text for text in (built and f"built for torch {built}", said) if text]
