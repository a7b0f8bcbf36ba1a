"""The Engine protocol, and the one dict that lists the engines. Listing them imports none of them."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, TypeGuard

from kaudit.catalogue import Catalogue
from kaudit.cell import Cell
from kaudit.errors import UserError
from kaudit.observation import Kernel, Outcome, Refused, Rejection, Skipped, Unmet
from kaudit_probes.failures import brief, named_briefly


@dataclass(frozen=True)
class Listed:
    """Where an engine's class is, the distribution that it audits, and how to get that."""

    target: str
    package: str
    get: str

    def version(self) -> str:
        """Of the distribution; empty where it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""


ENGINES: Mapping[str, Listed] = {
    "reference": Listed("kaudit_probes.engines.reference:ReferenceEngine", "torch", "pip install 'kaudit[cuda]'"),
    "sdpa": Listed("kaudit_probes.engines.sdpa:SdpaEngine", "torch", "pip install 'kaudit[torch]'"),
    "torch-varlen": Listed("kaudit_probes.engines.torch_varlen:VarlenEngine", "torch", "pip install 'kaudit[torch]'"),
    "flex": Listed("kaudit_probes.engines.flex:FlexEngine", "torch", "pip install 'kaudit[cuda]'"),
    "flashinfer": Listed(
        "kaudit_probes.engines.flashinfer:FlashInfer", "flashinfer-python", "pip install flashinfer-python"
    ),
    "flashinfer-cuda-cores": Listed(
        "kaudit_probes.engines.flashinfer:FlashInferCudaCores", "flashinfer-python", "pip install flashinfer-python"
    ),
    "flashinfer-fa2": Listed(
        "kaudit_probes.engines.flashinfer:FlashInferFa2", "flashinfer-python", "pip install flashinfer-python"
    ),
    "flashinfer-fa3": Listed(
        "kaudit_probes.engines.flashinfer:FlashInferFa3", "flashinfer-python", "pip install flashinfer-python"
    ),
    "flash-attn-2": Listed(
        "kaudit_probes.engines.flash_attn:FlashAttn2Engine",
        "flash-attn",
        "pip install flash-attn --no-build-isolation",
    ),
    "flash-attn-3": Listed(
        "kaudit_probes.engines.flash_attn:FlashAttn3Engine",
        "flash_attn_3",
        "pip install ./hopper, in a checkout of flash-attention",
    ),
    "flash-attn-4": Listed(
        "kaudit_probes.engines.flash_attn:FlashAttn4Engine", "flash-attn-4", "pip install --pre flash-attn-4"
    ),
    "xformers": Listed("kaudit_probes.engines.xformers:XformersEngine", "xformers", "pip install xformers"),
    "transformers": Listed(
        "kaudit_probes.engines.transformers_model:TransformersEngine", "transformers", "pip install transformers"
    ),
    "transformers-eager": Listed(
        "kaudit_probes.engines.transformers_model:TransformersEagerEngine", "transformers", "pip install transformers"
    ),
    "transformers-flash": Listed(
        "kaudit_probes.engines.transformers_model:TransformersFlashEngine",
        "transformers",
        "pip install transformers; pip install flash-attn --no-build-isolation",
    ),
    "vllm-select": Listed("kaudit_probes.engines.vllm_select:VllmSelect", "vllm", "pip install vllm"),
}


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Around the imports of the library behind a listed engine. Raises UserError where they fail, in whatever way: such
    libraries look for drivers and other libraries as they are imported."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # one that exits, and a panic of Rust code, are no Exceptions
        raise not_installed(name, error) from None


def not_installed(name: str, error: BaseException) -> UserError:
    """What to raise where the library behind an engine does not import: a listed one, or a subclass under its own name,
    of which it is not known how to get it."""
    listed = ENGINES.get(name)
    if listed is None:
        return UserError(f"--engine {name}: does not import ({named_briefly(error)})")
    absent = isinstance(error, ImportError) and not listed.version()
    what = f"not installed ({brief(error)})" if absent else f"does not import ({named_briefly(error)})"
    return UserError(f"--engine {name}: {what}; {listed.get}, where --python points")


def require_torch() -> None:
    """What a sweep begins with, whatever its engine. Raises UserError where torch does not import, in whatever way."""
    try:
        import torch  # noqa: F401
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in importing()
        fault = f"torch does not import ({named_briefly(error)}); mend its installation"
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            fault = f"{brief(error)}; install kaudit[torch] there"
        raise UserError(f"{sys.executable}: {fault}, or name another --python") from None


mirrored = partial(Unmet, mirrored=True)
"""A condition of the engine's code that its adapter knows and checked, and that the engine itself does not state."""

Span = Callable[[str], AbstractContextManager[object]]
"""`with span(op):` around each op of a call: what is launched inside belongs to that op."""


@dataclass(frozen=True)
class Path:
    """A way in which an engine can serve an op.

    `shows`: regular expressions; the path ran if each matches the name of some kernel of the op. A path that shows
    nothing of its own (eager torch) is the one that ran if kernels were seen and no other path's expressions match any.
    `also`: of kernels that the path launches in some cells and not in others, whoever else shows them.
    `roles`: each is the role of some kernel of the path. What shows neither a fast path nor the products and the
    softmax of an unfused attention is no path that is known, and is not called the slow one.
    `fits`: for paths whose kernels share their names: whether those of a cell are this one's, by their grids say.
    """

    name: str
    shows: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    roles: frozenset[str] = frozenset()
    fits: Callable[[Cell, Sequence[Kernel]], bool] | None = None


def names(paths: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[str, ...]]:
    """Per op, the names of its paths, as a table's header lists them."""
    return {op: tuple(path.name for path in of_op) for op, of_op in paths.items()}


@dataclass(frozen=True)
class Heard:
    """What the engine said while one cell was warmed up and run: log records, Python warnings, and bytes on stdout and
    stderr, from C as well, decoded."""

    records: tuple[logging.LogRecord, ...]
    warnings: tuple[str, ...]
    output: str


class Call(Protocol):
    """One cell, ready to run: its inputs are made. One whose results can be checked is a numerics.Checkable, too."""

    def run(self, span: Span) -> None:
        """Run every op of the cell once, each inside its span. Runs several times, the first ones to warm up."""
        ...

    def claimed(self) -> Mapping[str, str]:
        """Per op, the path the engine says it took in the last run; ops it says nothing of are absent."""
        ...

    def explain(self) -> Mapping[str, tuple[Rejection, ...]]:
        """Per op, the faster paths turned down and why, got by asking the engine's predicates now (source "asked")."""
        ...


class Engine(Protocol):
    """An engine under audit. Made once per probe process, as `Class(device)` with device "cuda" or "cpu"."""

    name: str
    refusals: tuple[type[Exception], ...]
    """Exceptions by which the engine says no on purpose, from prepare() or run(); any other is a crash."""
    environment: tuple[str, ...]
    """Names of the environment variables that steer the engine's dispatch; those that are set go into the stamp."""

    def __init__(self, device: str) -> None: ...

    def revision(self) -> str:
        """What is being audited: equal revisions are equal code."""
        ...

    def switches(self) -> Mapping[str, str]:
        """State of the process that steers dispatch without being an environment variable; it goes into the stamp."""
        ...

    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        """Per op, its paths, fastest first."""
        ...

    def supports(self, cell: Cell) -> Refused | Skipped | None:
        """None to run the cell; Refused if the engine says no; Skipped if this adapter cannot express it."""
        ...

    def prepare(self, cell: Cell) -> Call: ...

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        """Per op, the reasons the engine gave by itself during the run (source "announced")."""
        ...


class Selector(Protocol):
    """What an engine's own code says that it would choose on a GPU which need not be there. It runs nothing.

    Made once per probe process, as `Class((9, 0))` for compute capability 9.0.
    """

    name: str
    environment: tuple[str, ...]
    """As an Engine's."""

    def __init__(self, capability: tuple[int, int]) -> None: ...

    def revision(self) -> str: ...

    def switches(self) -> Mapping[str, str]:
        """As an Engine's; and what was taken for granted of the GPU's machine."""
        ...

    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """Per op, what the selector chooses from, in its own order."""
        ...

    def predict(self, cell: Cell) -> tuple[str, Outcome]:
        """The op with its Predicted; else WHOLE_CELL with Refused, Skipped, or Unseen where it cannot be told here.

        An exception is Unseen, too.
        """
        ...


def selects(kind: object) -> TypeGuard[Callable[[tuple[int, int]], Selector]]:
    """Whether what load() gave is a Selector's class."""
    return hasattr(kind, "predict")


class Stating(Protocol):
    """An Engine whose class says what its paths need, and what a cell lacks of it, on a GPU that need not be there."""

    @staticmethod
    def listed(sm: int, sm_count: int, cell: Cell | None) -> Catalogue:
        """`sm`: compute capability, 90 of 9.0, with so many SMs; both 0 of a CPU.

        Without a cell, a path has unmet what keeps every cell from it on that device.
        """
        ...


def states(kind: object) -> TypeGuard[Stating]:
    """Whether what load() gave is the class of an engine that is Stating, too."""
    return hasattr(kind, "listed")


class Requiring(Protocol):
    """An Engine whose class tells before one is made whether what it needs is there: for `kaudit engines`."""

    @classmethod
    def require(cls) -> None:
        """Raises UserError where that does not import, or lacks what the adapter cannot do without on the device that a
        sweep takes unasked.

        An engine that is made for that device raises it, too. This takes nothing of a GPU, whose memory may be
        another's, and asks for none: an engine that cannot do without says so when it is made.
        """
        ...


def requires(kind: object) -> TypeGuard[Requiring]:
    """Whether what load() gave is the class of an engine that is Requiring, too."""
    return hasattr(kind, "require")


def load(name: str) -> Callable[[str], Engine]:
    """The engine class behind a listed name or an own `package.module:Class`. Raises UserError where there is none."""
    target = ENGINES[name].target if name in ENGINES else name
    module, separator, attribute = target.partition(":")
    if not separator:
        raise UserError(f'--engine: no engine "{name}"; name one of {", ".join(ENGINES)}, or package.module:Class')
    try:
        engine: Callable[[str], Engine] = getattr(import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # as in importing()
        if name in ENGINES:
            raise not_installed(name, error) from None
        said = brief(error) if isinstance(error, ImportError | AttributeError) else named_briefly(error)
        what = f'--engine: "{name}" does not import: {said}'
        raise UserError(f"{what}; install it where --python points") from None
    return engine
