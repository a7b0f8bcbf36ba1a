"""What a dispatcher looks at: one decoder-layer step, described before a tensor exists."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["prefill", "chunked_prefill", "decode", "mixed"]
DType = Literal["fp32", "fp16", "bf16"]
KvDType = Literal["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"]
WeightDType = Literal["fp32", "fp16", "bf16", "fp8_e4m3"]
Sampling = Literal["greedy", "random"]
KvLayout = Literal["contiguous", "paged", "ragged"]
Mask = Literal["none", "causal", "window", "custom", "tree"]
Rope = Literal["none", "neox", "interleaved"]
RopeScaling = Literal["none", "linear", "yarn", "llama3"]
Feature = Literal[
    "prefix_share",
    "speculative_tree",
    "grammar",
    "cuda_graph",
    "softcap",
    "sinks",
    "top_k",
    "top_p",
    "transposed",
    "sliced",
    "broadcast",
    "idle",
    "vacant",
    "cancelled",
    "preempted",
    "stale_branch",
    "bad_last_page",
]

_KV_BYTES: dict[KvDType, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1}


@dataclass(frozen=True)
class Problem:
    """One step of one decoder layer on one device."""

    phase: Phase
    dtype: DType
    """Of activations, of the residual, and of every weight but the projections'."""
    weight_dtype: WeightDType
    """Of the projections' weights: as `dtype`, or fp8 with scales. With fp8 a projection quantises its input, too."""
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
    padding: int = 0
    """How many requests of the batch, the last ones, only fill up a CUDA graph's bucket: one token each, of nobody."""
    graphed: bool = False
    """Whether its launches are captured, to be replayed for requests of other lengths than these."""
    vocabulary: int = 32_768
    """Tokens that there are: a row of logits."""

    @property
    def hidden(self) -> int:
        """Elements of a token's hidden state."""
        return self.q_heads * self.head_dim

    @property
    def intermediate(self) -> int:
        """Elements of a token between the projections of the MLP."""
        return 2 * self.hidden

    @property
    def qkv_width(self) -> int:
        """Elements of a token's Q, K and V."""
        return self.q_heads * self.head_dim + self.kv_heads * (self.head_dim + self.v_head_dim)

    @property
    def attention_width(self) -> int:
        """Elements of a token's attention output, all heads."""
        return self.q_heads * self.v_head_dim

    @property
    def gate_up_width(self) -> int:
        """Elements of a token's gate and up."""
        return 2 * self.intermediate

    @property
    def requests(self) -> int:
        """Requests of somebody: the batch without padding."""
        return self.batch - self.padding

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.q_heads // self.kv_heads

    @property
    def query_rows(self) -> int:
        """(query, head of the group) pairs of the request with most queries: rows that meet the same keys."""
        return max(1, *self.q_lens) * self.group

    @property
    def kv_lens(self) -> tuple[int, ...]:
        """KV tokens of each request, the new ones included; `vacant`: the last one has none, old or new."""
        count = self.requests
        lens = [max(1, self.kv_len * (count - i) // count) if self.skew else self.kv_len for i in range(count)]
        if "vacant" in self.features:
            lens[-1] = 0
        return (*lens, *(1,) * self.padding)

    @property
    def q_lens(self) -> tuple[int, ...]:
        """New tokens of each request. Mixed: the first half of the requests bring a chunk, the others one token.

        `idle`: the last one brings none.
        """
        chunks = max(1, self.batch // 2) if self.phase == "mixed" else self.batch
        wanted = [self.q_len if i < chunks else 1 for i in range(self.batch)]
        if "idle" in self.features:
            wanted[-1] = 0
        return tuple(min(q_len, kv_len) for q_len, kv_len in zip(wanted, self.kv_lens, strict=True))

    @property
    def shared_prefix(self) -> int:
        """Tokens at the start of every request that lie on pages of all; 0 without `prefix_share`.

        Whole pages of the first half of the shortest request's earlier tokens. Padding has none, and shares nothing.
        """
        if "prefix_share" not in self.features or not self.page_size:
            return 0
        lens = tuple(zip(self.kv_lens, self.q_lens, strict=True))[: self.requests]
        shortest = min(kv_len - q_len for kv_len, q_len in lens)
        return shortest // 2 // self.page_size * self.page_size

    @property
    def shared_mib(self) -> int:
        """K and V of the shared prefix, all heads, in whole MiB: what is read once, or by every request."""
        elements = self.shared_prefix * self.kv_heads * (self.head_dim + self.v_head_dim)
        return elements * _KV_BYTES[self.kv_dtype] >> 20

    @property
    def sampling(self) -> Sampling:
        """Whether a request's token is the one of the largest logit, or drawn from those that top-k and top-p leave."""
        return "random" if self.features & {"top_k", "top_p"} else "greedy"

    @property
    def last_page_len(self) -> int:
        """Tokens on the last page of the longest request, as the step is told; 0 unless paged."""
        if "bad_last_page" in self.features:
            return self.page_size + 1
        return (self.kv_len - 1) % self.page_size + 1 if self.page_size else 0

    @property
    def tokens(self) -> int:
        """New tokens of the whole batch: the rows of every activation."""
        return sum(self.q_lens)
