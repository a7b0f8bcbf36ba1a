import functools
import os


def has_flashinfer_cubin():
    return "VLLM_HAS_FLASHINFER_CUBIN" in os.environ


def has_nvidia_artifactory():
    raise AssertionError("a prediction asks no server")


@functools.cache
def supports_trtllm_attention():
    return has_nvidia_artifactory()
