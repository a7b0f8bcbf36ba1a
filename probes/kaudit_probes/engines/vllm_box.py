"""What lets vLLM's selector be asked on a machine without the GPU: a platform, and extensions that need a driver.

Nothing here answers for a backend. An extension that does not load here is taken to load on the GPU's machine; those
are listed, for the stamp. What only a device can answer raises, and is not answered.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from kaudit.errors import UserError

# dlopen's words where a library is not on this machine, the driver's libcuda.so.1 say. What is there and broken
# ("undefined symbol") would be broken on the GPU's machine as well, and stays an error.
_NOT_HERE = "cannot open shared object file"


class Extensions(MetaPathFinder):
    """vLLM's own compiled modules; one whose libraries are not on this machine becomes an empty module."""

    def __init__(self) -> None:
        self.taken_for_granted: dict[str, str] = {}
        """Why, by module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("vllm."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            spec.loader = _Lenient(spec.loader, self.taken_for_granted)
        return spec


class _Lenient(Loader):
    def __init__(self, real: ExtensionFileLoader, taken_for_granted: dict[str, str]) -> None:
        self._real = real
        self._taken_for_granted = taken_for_granted

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        try:
            return self._real.create_module(spec)
        except ImportError as error:
            if _NOT_HERE not in str(error):
                raise
            self._taken_for_granted[spec.name] = str(error)
            return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ not in self._taken_for_granted:
            self._real.exec_module(module)


def platform(capability: tuple[int, int], extensions: Extensions) -> Any:
    """vLLM's CUDA platform, as it would be on a GPU of this capability, made the current one of this process.

    Raises ImportError where vLLM is not installed, and UserError where it has settled on a platform already.
    """
    sys.meta_path.insert(0, extensions)
    platforms: Any = importlib.import_module("vllm.platforms")
    cuda = importlib.import_module("vllm.platforms.cuda")
    there = importlib.import_module("vllm.platforms.interface").DeviceCapability(*capability)

    def get_device_capability(cls: type, device_id: int = 0) -> Any:  # noqa: ARG001 - as vLLM calls it
        return there

    if platforms._current_platform is not None:
        raise UserError("vLLM settled on a platform before it could be given one; use vllm 0.33")
    kind = type(
        "PredictedCuda", (cuda.CudaPlatformBase,), {"get_device_capability": classmethod(get_device_capability)}
    )
    platforms._current_platform = kind()
    return platforms._current_platform


def answer_for_server(reachable: bool) -> None:
    """From here vLLM asks a server of NVIDIA's whether FlashInfer's kernels can be had. Now nobody is: the answer."""
    flashinfer: Any = importlib.import_module("vllm.utils.flashinfer")
    flashinfer.has_nvidia_artifactory = lambda: reachable or flashinfer.has_flashinfer_cubin()
    flashinfer.supports_trtllm_attention.cache_clear()
