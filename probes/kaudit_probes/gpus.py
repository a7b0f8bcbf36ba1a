"""`python -m kaudit_probes.gpus`: the GPUs of this machine, a line each, as CUDA_VISIBLE_DEVICES names them.

In the order of nvidia-smi; a GPU that is split stands for its MIG instances. What went wrong is said on stderr.
"""

import sys
from collections.abc import Iterator
from typing import Any


def main() -> int:
    try:
        import pynvml
    except ImportError:
        print("nvidia-ml-py is not installed", file=sys.stderr)
        return 1
    try:
        for name in names(pynvml):
            print(name)
    except pynvml.NVMLError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def names(nvml: Any) -> Iterator[str]:
    nvml.nvmlInit()
    for number in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(number)
        if _split(nvml, gpu):
            yield from _instances(nvml, gpu)
        else:
            yield nvml.nvmlDeviceGetUUID(gpu)


def _split(nvml: Any, gpu: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError_NotSupported:
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _instances(nvml: Any, gpu: Any) -> Iterator[str]:
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place))
        except nvml.NVMLError_NotFound:
            continue  # a place that no instance takes


if __name__ == "__main__":
    sys.exit(main())
