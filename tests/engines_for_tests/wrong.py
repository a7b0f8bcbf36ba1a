"""Adapters that each break the Engine protocol in one way, over an engine that does nothing wrong."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from engines_for_tests.faulty import FaultyCall, FaultyEngine
from kaudit.observation import Rejection, Said
from kaudit_probes.engines import Heard, Path, Span

FAST = Path("fast", (r"^aten::mm$",))
SLOWER_TURNED_DOWN = {"attention": (Rejection("slower", "asked", (Said("no"),)),)}


def engine(call: dict[str, Any] | None = None, run: Any = None, **members: Any) -> type:
    """The right engine with other members, and other answers of its calls: `call` maps a method to what it gives."""

    class Call(FaultyCall):
        pass

    for name, given in (call or {}).items():
        setattr(Call, name, lambda self, given=given: given)  # noqa: ARG005
    if run:
        Call.run = run  # type: ignore[method-assign]
    prepare = {"prepare": lambda self, cell: Call(cell.shape.batch)}  # noqa: ARG005
    return type("Wrong", (FaultyEngine,), {**prepare, **members})


def gives(answer: Any) -> Any:
    return lambda self, *given: answer  # noqa: ARG005


def _marks_another_op(self: FaultyCall, span: Span) -> None:
    with span("sample"):
        self.matrix.mm(self.matrix)


AT_START: Mapping[str, tuple[type, str]] = {
    "no name": (engine(name=None), "name is None: Expected `str`, got `null`"),
    "revision": (engine(revision=gives(7)), "revision() is 7: Expected `str`, got `int`"),
    "environment": (engine(environment="A"), "environment is 'A': Expected `array`, got `str`"),
    "switches": (engine(switches=gives({"a": 1})), "switches() is {'a': 1}: Expected `str`, got `int`"),
    "refusals": (engine(refusals=ValueError), "refusals is <class 'ValueError'>, not a tuple of exception types"),
    "no paths": (engine(paths=gives({})), "paths() gives {}, not the paths of one op at least"),
    "None": (engine(paths=gives(None)), "paths() gives None, not the paths of one op at least"),
    "empty": (engine(paths=gives({"attention": ()})), "paths() gives () for attention, not a tuple of one Path"),
    "text": (engine(paths=gives({"attention": ("fast",)})), "paths() gives ('fast',) for attention, not a tuple"),
    "*": (engine(paths=gives({"*": (FAST,)})), "paths() lists paths of '*', which is no name of an op"),
    "twice": (engine(paths=gives({"attention": (FAST, FAST)})), "paths() lists 'fast' twice for attention"),
    "name of a path": (engine(paths=gives({"attention": (Path(3),)})), "a path's name, of attention, is 3: Expected"),  # type: ignore[arg-type]
    "expression": (
        engine(paths=gives({"attention": (Path("fast", ("mm(",)),)})),
        "shows of fast has 'mm(', which is no regular expression: missing ), unterminated subpattern",
    ),
    "no comma": (
        engine(paths=gives({"attention": (Path("fast", "aten::mm"),)})),  # type: ignore[arg-type]
        "shows of fast is text, not a tuple of expressions",
    ),
    "no announced": (
        type("Wrong", (), {"__init__": lambda self, device: None, "name": "bare"}),  # noqa: ARG005
        "has no refusals, environment, revision, switches, paths, supports, prepare, announced",
    ),
}
"""Mistakes that show before a cell runs, and what is said of each."""

OF_A_CELL: Mapping[str, tuple[type, str]] = {
    "supports": (engine(supports=gives(True)), "supports() gives True for"),
    "prepare": (engine(prepare=gives(SimpleNamespace(run=print))), "which has no claimed()"),
    "claims None": (engine({"claimed": None}), "claimed() gives None, not a path by op"),
    "claims no path": (
        engine({"claimed": {"attention": 3}}),
        "claimed() gives 3 for attention, not the name of a path",
    ),
    "claims of no op": (
        engine({"claimed": {"sample": "fast"}}),
        "claimed() speaks of 'sample', which paths() does not",
    ),
    "announces None": (engine(announced=gives(None)), "announced() gives no rejections by op: Expected `object`, got"),
    "announces text": (
        engine(announced=gives({"attention": (Rejection("fast", "announced", ("no",)),)})),  # type: ignore[arg-type]
        "announced() gives no rejections by op: Expected `object`, got `str`",
    ),
    "turns down no path": (
        engine({"explain": SLOWER_TURNED_DOWN}),
        "explain() turns down 'slower' of attention, of which",
    ),
    "explains of no op": (engine({"explain": {"sample": ()}}), "explain() speaks of 'sample', which paths() does not"),
    "asks and says announced": (
        engine({"explain": {"attention": (Rejection("fast", "announced", (Said("no"),)),)}}),
        'explain() gives a rejection of fast as "announced", not "asked"',
    ),
    "graph": (engine({"graph": "full", "outline": None}), "graph() gives 'full' for"),
    "no outline": (engine({"graph": None}), "which has not both graph() and outline()"),
    "a graph that is no method": (
        engine(prepare=gives(SimpleNamespace(run=print, claimed=dict, explain=dict, graph=1, outline=print))),
        "which has not both graph() and outline()",
    ),
    "marks no op": (engine(run=_marks_another_op), "run() marks 'sample', which paths() does not list"),
}
"""Mistakes that only a cell brings to light."""


class TurnsDownNoPath(FaultyEngine):
    """Right in each cell but those that fall back aloud: what they say is of a path that is not listed."""

    def announced(self, heard: Heard) -> Mapping[str, tuple[Rejection, ...]]:
        found = super().announced(heard)
        return {"attention": (Rejection("faster", "announced", (Said("no"),)),)} if found else {}


class ListsNothing(FaultyEngine):
    def paths(self) -> Mapping[str, tuple[Path, ...]]:
        return {}
