"""What a dispatcher looks at: one decoder-layer step, described before a tensor exists."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["prefill", "chunked_prefill", "decode", "mixed"]
DType = Literal["fp32", "fp16", "bf16"]
KvDType = Literal["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"]
KvLayout = Literal["contiguous", "paged", "ragged"]
Mask = Literal["none", "causal", "window", "custom", "tree"]
Rope = Literal["none", "neox", "interleaved"]
RopeScaling = Literal["none", "linear", "yarn", "llama3"]


@dataclass(frozen=True)
class Problem:
    """One step of one decoder layer on one device."""

    phase: Phase
    dtype: DType
    """Of activations and weights."""
    kv_dtype: KvDType
    q_heads: int
    kv_heads: int
    head_dim: int
    """Elements of a Q or K head."""
    v_head_dim: int
    """Elements of a V head."""
    kv_layout: KvLayout
    page_size: int
    """Tokens per page, 0 unless paged."""
    mask: Mask
    window: int
    """Keys that a query sees, its own included; 0 unless the mask is a window."""
    rope: Rope
    rope_scaling: RopeScaling
    rope_offset: int
    """Position of a request's first token."""
    features: frozenset[str]
    batch: int
    q_len: int
    """New tokens of the longest request."""
    kv_len: int
    """Tokens that the longest request attends to, its new ones included."""
    skew: bool
    """Request i of n has max(1, kv_len * (n - i) // n) KV tokens instead of kv_len, and no more queries."""
    sm: int
    """Compute capability as 10 * major + minor (H200: 90), 0 on a CPU."""
    sm_count: int
    """Streaming multiprocessors, 0 on a CPU."""

    @property
    def hidden(self) -> int:
        """Elements of a token's hidden state."""
        return self.q_heads * self.head_dim

    @property
    def intermediate(self) -> int:
        """Elements of a token between the projections of the MLP."""
        return 2 * self.hidden

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.q_heads // self.kv_heads

    @property
    def kv_lens(self) -> tuple[int, ...]:
        """KV tokens of each request, the new ones included."""
        if not self.skew:
            return (self.kv_len,) * self.batch
        return tuple(max(1, self.kv_len * (self.batch - i) // self.batch) for i in range(self.batch))

    @property
    def q_lens(self) -> tuple[int, ...]:
        """New tokens of each request. Mixed: the first half of the requests bring a chunk, the others one token."""
        chunks = max(1, self.batch // 2) if self.phase == "mixed" else self.batch
        wanted = (self.q_len if i < chunks else 1 for i in range(self.batch))
        return tuple(min(q_len, kv_len) for q_len, kv_len in zip(wanted, self.kv_lens, strict=True))

    @property
    def tokens(self) -> int:
        """New tokens of the whole batch: the rows of every activation."""
        return sum(self.q_lens)

    @property
    def tiles(self) -> int:
        """(request, KV head) pairs: the thread blocks of a decode grid before any split."""
        return self.batch * self.kv_heads

    @property
    def visible_keys(self) -> int:
        """Most keys that one query sees."""
        return min(self.kv_len, self.window) if self.mask == "window" else self.kv_len
