"""The stand-in's backends: some answer, some need what only the GPU's machine has."""

from enum import Enum

from vllm.platforms import current_platform
from vllm.utils import flashinfer


class FlashAttn:
    @staticmethod
    def validate_configuration(head_size, block_size, has_sink, device_capability, **rest):  # noqa: ARG004
        # As in the real one, some predicates ask the platform, not the capability that they are given.
        assert current_platform.get_device_capability() == device_capability
        checks = {
            "head_size not supported": head_size > 256,
            "block_size not supported": block_size % 16,
            "sink not supported on compute capability < 9.0": has_sink and device_capability < (9, 0),
        }
        return [reason for reason, fails in checks.items() if fails]


class FlashInfer:
    @staticmethod
    def validate_configuration(head_size, has_sink, **rest):  # noqa: ARG004
        reasons = [] if head_size in (64, 128) else ["head_size not supported"]
        # Sinks need kernels that are downloaded: the real one asks a server whether it is there.
        if has_sink and not flashinfer.supports_trtllm_attention():
            reasons.append("attention sinks not supported")
        return reasons


class Triton:
    @staticmethod
    def validate_configuration(block_size, **rest):  # noqa: ARG004
        return ["block_size not supported"] if block_size % 16 else []


class CutlassMla:
    @staticmethod
    def validate_configuration(kv_cache_dtype, **rest):  # noqa: ARG004
        if kv_cache_dtype == "auto":
            return ["kv_cache_dtype not supported"]
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check")


class Backend(Enum):
    FLASH_ATTN = FlashAttn
    FLASHINFER = FlashInfer
    TRITON_ATTN = Triton
    CUTLASS_MLA = CutlassMla
    TOKENSPEED_MLA = "not installed"

    def get_class(self):
        if self is Backend.TOKENSPEED_MLA:
            import tokenspeed_mla

            return tokenspeed_mla
        return self.value


def priorities(config, capability):
    if config.use_mla:
        return [Backend.TOKENSPEED_MLA, Backend.CUTLASS_MLA]
    if capability.major == 10 and not config.use_non_causal:
        return [Backend.FLASHINFER, Backend.FLASH_ATTN, Backend.TRITON_ATTN]
    return [Backend.FLASH_ATTN, Backend.FLASHINFER, Backend.TRITON_ATTN]
