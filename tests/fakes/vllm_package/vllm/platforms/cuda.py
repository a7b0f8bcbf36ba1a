from typing import Any, NamedTuple

import vllm._extension  # noqa: F401 - the test puts one there


class Candidate(NamedTuple):
    backend_class: Any
    backend: Any
    priority: int


def _get_attn_backend_class(backend):
    return backend.get_class()


class CudaPlatformBase:
    @classmethod
    def get_device_capability(cls, device_id=0):
        raise NotImplementedError

    @classmethod
    def get_valid_backends(cls, device_capability, attn_selector_config, num_heads=None):  # noqa: ARG003
        from vllm import backends

        valid, invalid = [], {}
        for place, backend in enumerate(backends.priorities(attn_selector_config, device_capability)):
            try:
                chosen = _get_attn_backend_class(backend)
                reasons = chosen.validate_configuration(
                    device_capability=device_capability, **attn_selector_config._asdict()
                )
            except (ImportError, OSError) as error:
                reasons = [f"{type(error).__name__}: {error}"]
            if reasons:
                invalid[backend] = (place, reasons)
            else:
                valid.append(Candidate(chosen, backend, place))
        return valid, invalid
