import os

VLLM_BATCH_INVARIANT = bool(int(os.environ.get("VLLM_BATCH_INVARIANT", "0")))
