from contextlib import contextmanager
from dataclasses import dataclass

current = None


@dataclass
class CacheConfig:
    block_size: int
    cache_dtype: str


@dataclass
class VllmConfig:
    cache_config: CacheConfig


@contextmanager
def set_current_vllm_config(config):
    global current
    current = config
    yield
    current = None
