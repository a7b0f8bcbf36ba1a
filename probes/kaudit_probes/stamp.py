"""What the observations of this process are valid for: device, driver, and the libraries as loaded, not as declared."""

import ctypes
import os
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from kaudit.table import Device

# Steers dispatch below every engine: cuBLAS and cuDNN heuristics, TF32, SDPA's order, the CPU's vector width.
_ENVIRONMENT = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED",
    "TRITON_INTERPRET",
)


def device(kind: str) -> Device:
    if kind == "cpu":
        return Device("cpu", torch.backends.cpu.get_cpu_capability(), 0, "none")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    arch = f"sm_{properties.major}{properties.minor}"
    return Device(properties.name, arch, properties.multi_processor_count, _driver())


def versions(kind: str) -> dict[str, str]:
    found = {"torch": str(torch.__version__)}
    if kind == "cuda":
        found |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "cublas": _library_version("libcublas.so", "cublasGetProperty"),
            "triton": package_version("triton"),
            "cuda-core": package_version("cuda-core"),
        }
    return found


def environment(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in sorted({*_ENVIRONMENT, *names}) if name in os.environ}


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except (ImportError, OSError) as error:
        return f"unknown ({type(error).__name__})"
    except pynvml.NVMLError as error:
        return f"unknown ({error})"


def _library_version(library: str, get_property: str) -> str:
    """Major.minor.patch that a loaded library gives of itself; a system copy earlier on the path shows here alone."""
    paths = re.findall(rf"\S*/{re.escape(library)}\S*", Path("/proc/self/maps").read_text())
    if not paths:
        return "not loaded"
    read = getattr(ctypes.CDLL(paths[0]), get_property)
    value = ctypes.c_int()
    numbers = []
    for kind in range(3):  # libraryPropertyType: MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        read(kind, ctypes.byref(value))
        numbers.append(str(value.value))
    return ".".join(numbers)
