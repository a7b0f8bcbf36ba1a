"""vLLM's choice of an attention backend, asked of its own get_valid_backends() for any GPU: predicted, not observed.

It chooses by head size, dtypes, page size, sinks, window and MLA. It is not told of position encoding, phase, lengths,
softcap, CUDA graphs, shared prefixes or a grammar, so that these cannot change its choice. What a backend then picks
inside (FlashAttention 2, 3 or 4; FlashInfer's kernels) is not asked.
"""

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import WHOLE_CELL, Outcome, Predicted, Refused, Rejection, Said, Skipped, Unseen
from kaudit_probes.engines import not_installed
from kaudit_probes.engines.batches import DTYPES
from kaudit_probes.engines.vllm_box import Extensions, answer_for_server, platform
from kaudit_probes.failures import named
from kaudit_probes.stamp import package_version

# One op for each list of backends that vLLM has, with a cell of its kind.
_OPS = {
    "attention": "decode/bf16/kv-bf16/h32x8x128/paged16/causal/none/plain/b1q1k1",
    "non_causal_attention": "decode/bf16/kv-bf16/h32x8x128/paged16/none/none/plain/b1q1k1",
    "mla_attention": "decode/bf16/kv-bf16/h128x1x576x512/paged64/causal/none/plain/b1q1k1",
}

_KERNELS = (
    "it needs FlashInfer's precompiled kernels, and whether they can be had there is unknown: install flashinfer-cubin "
    "where --python points, or set VLLM_HAS_FLASHINFER_CUBIN=1 if they can"
)

Candidate = tuple[str, tuple[str, ...]]
"""A backend in vLLM's order, and its reasons against the cell: none if it takes it."""


class VllmSelect:
    name = "vllm-select"
    environment = ("VLLM_BATCH_INVARIANT", "VLLM_HAS_FLASHINFER_CUBIN")

    def __init__(self, capability: tuple[int, int]) -> None:
        self._extensions = Extensions()
        try:
            self._platform = platform(capability, self._extensions)
            from vllm.platforms import cuda

            cuda._get_attn_backend_class = _Guarded
            self._capability = self._platform.get_device_capability()
            # Asked now, so that all that is taken for granted is known for the stamp.
            self._paths = {op: tuple(name for name, _ in self._asked(Cell.parse(cell))) for op, cell in _OPS.items()}
        except UserError:
            raise
        except (AttributeError, TypeError) as error:
            raise UserError(
                f"--engine {self.name}: vllm {self.revision()} is asked otherwise than 0.33 ({error}); use that one"
            ) from None
        except Exception as error:
            raise not_installed(self.name, error) from None

    def revision(self) -> str:
        return version("vllm")

    def switches(self) -> Mapping[str, str]:
        granted = ", ".join(sorted(self._extensions.taken_for_granted))
        libraries = {name: package_version(name) for name in ("flashinfer-python", "flashinfer-cubin")}
        return libraries | {"taken to load there": granted or "nothing"}

    def paths(self) -> Mapping[str, tuple[str, ...]]:
        return self._paths

    def predict(self, cell: Cell) -> tuple[str, Outcome]:
        why = _inexpressible(cell)
        if why is not None:
            return WHOLE_CELL, Skipped(why)
        faster: list[Rejection] = []
        for name, reasons in self._asked(cell):
            if not reasons:
                return _op(cell), Predicted(name, tuple(faster))
            for reason in reasons:
                if isinstance(reason, _NotTold):
                    return WHOLE_CELL, Unseen(f"{name} stands before what is left, and cannot be asked here: {reason}")
            faster.append(Rejection(name, "asked", tuple(map(Said, reasons))))
        said = "; ".join(f"{no.path}: {', '.join(map(str, no.reasons))}" for no in faster)
        return WHOLE_CELL, Refused(f"no attention backend is valid: {said}")

    def _asked(self, cell: Cell) -> list[Candidate]:
        """All candidates, in vLLM's order."""
        from vllm.config import CacheConfig, VllmConfig, set_current_vllm_config
        from vllm.v1.attention.selector import AttentionSelectorConfig

        kv_dtype = "auto" if cell.kv_dtype == cell.dtype else cell.kv_dtype
        config = AttentionSelectorConfig(
            head_size=cell.heads.dim,
            dtype=DTYPES[cell.dtype],
            kv_cache_dtype=kv_dtype,
            block_size=cell.layout.page,
            use_mla=_is_mla(cell),
            has_sink="sinks" in cell.features,
            has_sliding_window=cell.mask.kind == "window",
            use_non_causal=cell.mask.kind == "none",
            use_batch_invariant=_batch_invariant(),
        )
        # Some predicates read the configuration that a serving process has.
        cache = CacheConfig(block_size=cell.layout.page, cache_dtype=kv_dtype)
        with set_current_vllm_config(VllmConfig(cache_config=cache)):
            valid, invalid = self._platform.get_valid_backends(self._capability, config, cell.heads.q)
        ranked = [(candidate.priority, candidate.backend.name, ()) for candidate in valid]
        ranked += [(place, backend.name, tuple(reasons)) for backend, (place, reasons) in invalid.items()]
        return [(f"vllm:{name}", reasons) for _, name, reasons in sorted(ranked, key=lambda one: one[0])]


class _NotTold(str):
    """In place of a backend's reasons: what keeps this machine from telling whether there are any."""


class _Guarded:
    """A backend whose predicates may need what is not here: that is a reason of its own, and ends no question.

    Whether FlashInfer's kernels can be had is asked both ways: only where it decides can this machine not tell.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def validate_configuration(self, **config: Any) -> list[str]:
        without, having = (self._reasons(reachable, config) for reachable in (False, True))
        return [_NotTold(_KERNELS)] if without and not having else having

    def _reasons(self, reachable: bool, config: Mapping[str, Any]) -> list[str]:
        answer_for_server(reachable)
        try:
            return list(self._backend.get_class().validate_configuration(**config))
        except ModuleNotFoundError as error:
            # What is not installed would be missing to vLLM on the GPU, too: these are the words it has for that.
            if error.name and find_spec(error.name.partition(".")[0]) is None:
                return [f"{type(error).__name__}: {error}"]
            return [_NotTold(named(error))]
        except Exception as error:
            return [_NotTold(named(error))]


def _batch_invariant() -> bool:
    from vllm import envs

    return bool(envs.VLLM_BATCH_INVARIANT)


def _is_mla(cell: Cell) -> bool:
    """Attention over the latent, as DeepSeek decodes: one KV head, whose values are a part of its keys."""
    return cell.heads.kv == 1 and cell.heads.v_dim < cell.heads.dim


def _op(cell: Cell) -> str:
    if _is_mla(cell):
        return "mla_attention"
    return "non_causal_attention" if cell.mask.kind == "none" else "attention"


def _inexpressible(cell: Cell) -> str | None:
    if cell.layout.kind != "paged":
        return f"vLLM's KV cache is paged, not {cell.layout.kind}"
    if cell.dtype == "fp8_e4m3":
        return "vLLM's selector is asked with the model's dtype, which is no fp8"
    if cell.kv_dtype == "int8":
        return "vLLM's int8 KV cache has a scale for each token and head, of which a cell says nothing"
    if cell.mask.kind in ("custom", "tree"):
        return "vLLM's attention takes no mask tensor"
    if cell.heads.v_dim != cell.heads.dim and not _is_mla(cell):
        return "vLLM's selector is told one head size, and v has another"
    return None
