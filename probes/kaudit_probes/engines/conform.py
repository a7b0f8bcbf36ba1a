"""Whether an adapter keeps to the Engine protocol: a mistake of its is one line, and ends the sweep.

What an engine does wrong is an outcome. What its adapter gets wrong would accuse the engine, or end the probe.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from kaudit.errors import UserError
from kaudit.observation import WHOLE_CELL, Refused, Rejection, Skipped
from kaudit_probes.engines import Path
from kaudit_probes.graphs import Graphed, Ungraphed, graphing
from kaudit_probes.numerics import Computed

_ENGINE = ("name", "refusals", "environment", "revision", "switches", "paths", "supports", "prepare", "announced")
_CALL = ("run", "claimed", "explain")

Listed = Mapping[str, tuple[str, ...]]
"""Per op, the names of its paths."""


def check_engine(engine: Any) -> None:
    """What can be told before a cell runs. Raises UserError with the first mistake."""
    _raise_first(engine, _of_engine(engine))


def check_support(engine: Any, cell: str, said: object) -> None:
    """What supports() gave, where it is not None. Raises UserError."""
    if not isinstance(said, Refused | Skipped):
        _raise_first(engine, [f"supports() gives {_brief(said)} for {cell}, not None, Refused or Skipped"])


def check_call(engine: Any, cell: str, call: object) -> None:
    """What prepare() gave. Raises UserError."""
    if missing := [member for member in _CALL if not callable(getattr(call, member, None))]:
        _raise_first(engine, [f"prepare() gives {_brief(call)} for {cell}, which has no {missing[0]}()"])
    if graphing(call) and not all(callable(getattr(call, member, None)) for member in ("graph", "outline")):
        _raise_first(engine, [f"prepare() gives {_brief(call)} for {cell}, which has not both graph() and outline()"])


def check_words(engine: Any, cell: str, listed: Listed, claimed: Any, announced: Any, asked: Any) -> None:
    """What it says of a cell that ran. Raises UserError with the first mistake."""
    faults = chain(
        _of_claims(claimed, listed),
        _of_rejections("announced()", "announced", announced, listed),
        _of_rejections("explain()", "asked", asked, listed),
    )
    _raise_first(engine, (f"{fault}, for {cell}" for fault in faults))


def check_numbers(engine: Any, cell: str, listed: Listed, computed: Iterable[object]) -> None:
    """What numbers() handed over. Raises UserError."""
    for one in computed:
        if not isinstance(one, Computed):
            _raise_first(engine, [f"numbers() gives {_brief(one)} for {cell}, not what an op Computed"])
        elif one.op not in listed:
            _raise_first(engine, [f"numbers() speaks of {one.op!r}, which paths() does not list, for {cell}"])


def check_graph(engine: Any, cell: str, graph: object) -> None:
    """What a call says of its CUDA graph. Raises UserError."""
    if graph is not None and not isinstance(graph, Graphed | Ungraphed):
        _raise_first(engine, (f"graph() gives {_brief(graph)} for {cell}, not Graphed, Ungraphed or None",))


def check_ops(engine: Any, cell: str, listed: Listed, ops: Iterable[str]) -> None:
    """The ops that a call has marked. Raises UserError."""
    unknown = (op for op in ops if op not in listed)
    _raise_first(engine, (f"run() marks {op!r}, which paths() does not list, for {cell}" for op in unknown))


def _raise_first(engine: Any, faults: Iterable[str]) -> None:
    for fault in faults:
        adapter = f"{type(engine).__module__}:{type(engine).__qualname__}"
        raise UserError(f"{adapter}: {fault}; mend the adapter")


def _of_engine(engine: Any) -> Iterator[str]:
    if missing := [member for member in _ENGINE if not hasattr(engine, member)]:
        yield f"has no {', '.join(missing)}"
        return
    yield from _typed("name", engine.name, str)
    yield from _typed("environment", engine.environment, tuple[str, ...])
    yield from _typed("revision()", engine.revision(), str)
    yield from _typed("switches()", engine.switches(), dict[str, str])
    kinds = engine.refusals
    if not isinstance(kinds, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds
    ):
        yield f"refusals is {_brief(kinds)}, not a tuple of exception types"
    paths = engine.paths()
    if not isinstance(paths, Mapping) or not paths:
        yield f"paths() gives {_brief(paths)}, not the paths of one op at least"
        return
    for op, of_op in paths.items():
        yield from _of_paths(op, of_op)


def _of_paths(op: Any, paths: Any) -> Iterator[str]:
    if not isinstance(op, str) or op in ("", WHOLE_CELL):
        yield f"paths() lists paths of {op!r}, which is no name of an op"
    if not isinstance(paths, tuple) or not paths or not all(isinstance(path, Path) for path in paths):
        yield f"paths() gives {_brief(paths)} for {op}, not a tuple of one Path at least, fastest first"
        return
    for path in paths:
        yield from _typed(f"a path's name, of {op},", path.name, str)
        if [other.name for other in paths].count(path.name) > 1:
            yield f"paths() lists {path.name!r} twice for {op}"
        yield from _of_expressions(f"shows of {path.name}", path.shows)
        yield from _of_expressions(f"also of {path.name}", path.also)


def _of_expressions(what: str, given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield f"{what} is text, not a tuple of expressions: a tuple of one ends in a comma"
        return
    for expression in given:
        try:
            re.compile(expression)
        except (re.error, TypeError) as error:
            yield f"{what} has {expression!r}, which is no regular expression: {error}"


def _of_claims(claimed: Any, listed: Listed) -> Iterator[str]:
    if not isinstance(claimed, Mapping):
        yield f"claimed() gives {_brief(claimed)}, not a path by op; leave out ops that the engine says nothing of"
        return
    for op, path in claimed.items():
        if op not in listed:
            yield f"claimed() speaks of {op!r}, which paths() does not list"
        elif not isinstance(path, str):
            # A name that paths() does not list is the engine's own word, and stands in the table as a contradiction.
            yield f"claimed() gives {_brief(path)} for {op}, not the name of a path"


def _of_rejections(method: str, source: str, found: Any, listed: Listed) -> Iterator[str]:
    try:
        # Structs do not look at what they are made of; what is read back is looked at to the last reason.
        by_op = msgspec.convert(msgspec.to_builtins(found), dict[str, tuple[Rejection, ...]])
    except (msgspec.ValidationError, TypeError) as error:
        yield f"{method} gives no rejections by op: {error}"
        return
    for op, rejections in by_op.items():
        if op not in listed:
            yield f"{method} speaks of {op!r}, which paths() does not list"
            continue
        for no in rejections:
            if no.path not in listed[op]:
                yield f"{method} turns down {no.path!r} of {op}, of which paths() lists {', '.join(listed[op])}"
            if no.source != source:
                yield f'{method} gives a rejection of {no.path} as "{no.source}", not "{source}"'


def _typed(what: str, value: object, kind: Any) -> Iterator[str]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        yield f"{what} is {_brief(value)}: {error}"


def _brief(value: object) -> str:
    return repr(value)[:80]
