from typing import Any, NamedTuple


class AttentionSelectorConfig(NamedTuple):
    head_size: int
    dtype: Any
    kv_cache_dtype: str
    block_size: int
    use_mla: bool = False
    has_sink: bool = False
    has_sliding_window: bool = False
    use_non_causal: bool = False
    use_batch_invariant: bool = False
