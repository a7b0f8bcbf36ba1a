"""A cell: one combination of the matrix, and its printable id.

The id is table key, test id and `--only` glob; its tokens are also what a matrix file lists as axis values, so there is
one spelling of everything:

    decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k4096
    chunked_prefill/bf16/kv-fp8_e4m3/h8x8x64/paged16/window1024/neox+llama3@131071/sinks+softcap/b2q128k4096skew
"""

import re
from functools import cache
from typing import Any, Literal, Self, get_args

from msgspec import Struct

Phase = Literal["prefill", "chunked_prefill", "decode", "mixed"]
DType = Literal["fp32", "fp16", "bf16", "fp8_e4m3"]
KvDType = Literal["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"]
LayoutKind = Literal["contiguous", "paged", "ragged"]
MaskKind = Literal["none", "causal", "window", "custom", "tree"]
RopeStyle = Literal["none", "neox", "interleaved"]
Scaling = Literal["none", "linear", "yarn", "llama3"]
Feature = Literal[
    "prefix_share",
    "speculative_tree",
    "grammar",
    "cuda_graph",
    "softcap",
    "sinks",
    # How a token is chosen; without either, the most probable one is.
    "top_k",
    "top_p",
    # How the tensors that a step is given lie in memory.
    "transposed",
    "sliced",
    "broadcast",
    # Requests of the batch that bring no token: the last one keeps its KV, or has none yet.
    "idle",
    "vacant",
    # What became of requests before this step: their KV may still stand in pages that others have now.
    "cancelled",
    "preempted",
    "stale_branch",
    # Metadata that contradict themselves: a last page that holds more tokens than a page does.
    "bad_last_page",
]

_COUNT = r"([1-9]\d*)"
"""No count of a cell can be 0: kv_len includes the query's own tokens. And none starts with 0: one cell has one id."""


class Heads(Struct, frozen=True):
    """Query heads, KV heads, and the head dims of Q/K and of V, in elements."""

    q: int
    kv: int
    dim: int
    v_dim: int

    @classmethod
    def parse(cls, token: str) -> Self:
        numbers = _match(
            rf"h{_COUNT}x{_COUNT}x{_COUNT}(?:x{_COUNT})?", token, "heads", "h<q>x<kv>x<dim>, as in h32x8x128"
        )
        q, kv, dim, v_dim = (int(number) for number in (*numbers[:3], numbers[3] or numbers[2]))
        return cls(q, kv, dim, v_dim)

    def __str__(self) -> str:
        return f"h{self.q}x{self.kv}x{self.dim}" + (f"x{self.v_dim}" if self.v_dim != self.dim else "")


class Layout(Struct, frozen=True):
    """How K and V lie in memory; `page` is tokens per page, 0 where there are no pages."""

    kind: LayoutKind
    page: int = 0

    @classmethod
    def parse(cls, token: str) -> Self:
        if token in ("contiguous", "ragged"):
            return cls(_literal(LayoutKind, token, "kv_layout"))
        (page,) = _match(rf"paged{_COUNT}", token, "kv_layout", "contiguous, ragged, or paged<tokens> as in paged16")
        return cls("paged", int(page))

    def __str__(self) -> str:
        return f"paged{self.page}" if self.kind == "paged" else self.kind


class Mask(Struct, frozen=True):
    """Which keys a query sees; causal is aligned bottom-right, `window` counts keys with the query's own included."""

    kind: MaskKind
    window: int = 0

    @classmethod
    def parse(cls, token: str) -> Self:
        if token != "window" and token in get_args(MaskKind):
            return cls(_literal(MaskKind, token, "mask"))
        needed = "none, causal, custom, tree, or window<keys> as in window1024"
        (window,) = _match(rf"window{_COUNT}", token, "mask", needed)
        return cls("window", int(window))

    def __str__(self) -> str:
        return f"window{self.window}" if self.kind == "window" else self.kind


class Rope(Struct, frozen=True):
    """Rotary position encoding: style, scaling of its frequencies, and the position of the first token."""

    style: RopeStyle
    scaling: Scaling = "none"
    offset: int = 0

    @classmethod
    def parse(cls, token: str) -> Self:
        needed = "neox, interleaved or none, as in neox+yarn@131071"
        style, scaling, offset = _match(r"([a-z]+)(?:\+([a-z0-9]+))?(?:@(0|[1-9]\d*))?", token, "rope", needed)
        if style == "none" and (scaling or offset):
            raise ValueError(f'rope "{token}": no position encoding takes no scaling and no offset; write none')
        return cls(
            _literal(RopeStyle, style, "rope"), _literal(Scaling, scaling or "none", "rope scaling"), int(offset or 0)
        )

    def __str__(self) -> str:
        scaling = f"+{self.scaling}" if self.scaling != "none" else ""
        return f"{self.style}{scaling}" + (f"@{self.offset}" if self.offset else "")


class Shape(Struct, frozen=True):
    """Requests in the batch; tokens of query and of KV (the query's own included) for the longest request.

    With `skew`, request i of n has max(1, kv_len * (n - i) // n) KV tokens instead of kv_len, and no more queries.
    """

    batch: int
    q_len: int
    kv_len: int
    skew: bool = False

    @classmethod
    def parse(cls, token: str) -> Self:
        needed = "b<batch>q<q_len>k<kv_len> with counts of at least 1, as in b8q1k4096 or b8q1k4096skew"
        batch, q_len, kv_len, skew = _match(rf"b{_COUNT}q{_COUNT}k{_COUNT}(skew)?", token, "shape", needed)
        return cls(int(batch), int(q_len), int(kv_len), bool(skew))

    def __str__(self) -> str:
        return f"b{self.batch}q{self.q_len}k{self.kv_len}" + ("skew" if self.skew else "")


class Cell(Struct, frozen=True):
    """One combination of the matrix."""

    phase: Phase
    dtype: DType
    kv_dtype: KvDType
    heads: Heads
    layout: Layout
    mask: Mask
    rope: Rope
    features: tuple[Feature, ...]
    shape: Shape

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id. Raises ValueError with one line that says which part is wrong and what it may be.

        Tokens may be spelled in several ways where a matrix file lists them, `sinks+softcap` and `softcap+sinks`; an id
        only in the one that `id` gives back.
        """
        parts = text.split("/")
        if len(parts) != len(cls.__struct_fields__):
            raise ValueError(f'cell "{text}" has {len(parts)} parts, needs {"/".join(cls.__struct_fields__)}')
        phase, dtype, kv, heads, layout, mask, rope, features, shape = parts
        cell = cls(
            _literal(Phase, phase, "phase"),
            _literal(DType, dtype, "dtype"),
            _literal(KvDType, kv.removeprefix("kv-"), "kv_dtype"),
            Heads.parse(heads),
            Layout.parse(layout),
            Mask.parse(mask),
            Rope.parse(rope),
            parse_features(features),
            Shape.parse(shape),
        )
        if cell.id != text:
            raise ValueError(f'cell "{text}" is not as ids are spelled; write {cell.id}')
        return cell

    @property
    def id(self) -> str:
        return "/".join(
            (
                self.phase,
                self.dtype,
                f"kv-{self.kv_dtype}",
                str(self.heads),
                str(self.layout),
                str(self.mask),
                str(self.rope),
                "+".join(self.features) or "plain",
                str(self.shape),
            )
        )

    def axes(self) -> dict[str, str | int]:
        """The cell as flat axis values, composite axes taken apart: what `explain` and `show --where` look at.

        Each is read off one part of the id alone, and what says the same as another stands after it: explain counts on
        both.
        """
        return {
            "phase": self.phase,
            "dtype": self.dtype,
            "kv_dtype": self.kv_dtype,
            "q_heads": self.heads.q,
            "kv_heads": self.heads.kv,
            "head_dim": self.heads.dim,
            "v_head_dim": self.heads.v_dim,
            "gqa_ratio": self.heads.q // self.heads.kv,
            "kv_layout": self.layout.kind,
            "page_size": self.layout.page,
            "mask": self.mask.kind,
            "window": self.mask.window,
            "rope": self.rope.style,
            "rope_scaling": self.rope.scaling,
            "rope_offset": self.rope.offset,
            **{name: "yes" if name in self.features else "no" for name in get_args(Feature)},
            "batch": self.shape.batch,
            "q_len": self.shape.q_len,
            "kv_len": self.shape.kv_len,
            "lengths": "skewed" if self.shape.skew else "even",
        }


def parse_features(token: str) -> tuple[Feature, ...]:
    """`plain`, or feature names joined by `+`; they are kept sorted, so that one set has one id."""
    if token == "plain":
        return ()
    names = [_literal(Feature, name, "feature") for name in token.split("+")]
    if len(set(names)) != len(names):
        raise ValueError(f'features "{token}": a feature stands twice; name each once')
    return tuple(sorted(names))


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _match(pattern: str, token: str, what: str, needed: str) -> tuple[str, ...]:
    found = _pattern(pattern).fullmatch(token)
    if found is None:
        raise ValueError(f'{what} "{token}" is not {needed}')
    return found.groups(default="")


def _literal(kind: Any, token: str, what: str) -> Any:
    if token not in get_args(kind):
        raise ValueError(f'{what} "{token}" is not one of {", ".join(get_args(kind))}')
    return token
