"""YAML text to plain data that remembers where each value stands, read strictly: what YAML 1.1 would guess is a fault.

The nodes of `yaml.compose` are converted here instead of by a PyYAML constructor, which drops positions, lets a later
key replace an earlier one, and turns `no` into False and `1:30` into 90 without a word.
"""

import re
from typing import Any

import yaml
from msgspec import Struct

from kaudit.errors import UserError

Path = tuple[str | int, ...]

MOST_DEPTH = 20
MOST_NODES = 20_000
"""With aliases followed. Both are far beyond what people write, and keep a bomb from taking memory or the stack."""

_TAG = "tag:yaml.org,2002:"
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_LONG = re.compile(r"-?[1-9][0-9]{18,}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_AS_TEXT = {f"{_TAG}{name}" for name in ("str", "timestamp", "merge", "value")}


class Fault(Struct, frozen=True, order=True):
    """What is wrong at a line and column, both from 1, and what to do."""

    line: int
    column: int
    text: str

    def at(self, source: str) -> str:
        """One printable line, however long or odd the text that it quotes."""
        text = self.text if len(self.text) <= 400 else f"{self.text[:300]} ... {self.text[-90:]}"
        printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        return f"{source}:{self.line}:{self.column}: {printable}"


class Marked(Struct):
    """`data` is dicts, lists, str, int, float, bool and None; `places` has the (line, column) of each value by path.

    `keys` has those of mapping keys. `faults` are the ones found on the way; a scalar at fault is kept as its text.
    """

    places: dict[Path, tuple[int, int]]
    keys: dict[Path, tuple[int, int]]
    faults: list[Fault]
    data: object = None
    nodes: int = 0


def read_yaml(text: str, source: str) -> Marked:
    """Raises UserError where the text is no single YAML document, or nests or repeats itself beyond reason."""
    marked = Marked({(): (1, 1)}, {}, [])
    try:
        _check_size(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        marked.data = None if root is None else _convert(root, (), marked, ())
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = before.count("\n") + 1, error.position - before.rfind("\n")
        raise UserError(Fault(*mark, f"not YAML: {error.reason}; remove the character").at(source)) from None
    except _TooMuch as error:
        raise UserError(error.fault.at(source)) from None
    except yaml.MarkedYAMLError as error:
        found = error.problem_mark or error.context_mark
        line, column = (found.line + 1, found.column + 1) if found else (1, 1)
        what = " ".join(part for part in (error.context, error.problem) if part)
        # A glob such as */paged16/* reads as one.
        mend = "put text that begins with * in quotes" if "alias" in what else "mend the syntax"
        raise UserError(Fault(line, column, f"not YAML: {what}; {mend}").at(source)) from None
    # PyYAML lets chr() and int() fail on "\UFFFFFFFF" and on %YAML 1.<many digits>.
    except (ValueError, OverflowError) as error:
        raise UserError(Fault(1, 1, f"not YAML: {error}; mend the syntax").at(source)) from None
    return marked


class _TooMuch(Exception):
    def __init__(self, node: yaml.Node | yaml.Event, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(*_place(node), text)


def _place(node: yaml.Node | yaml.Event) -> tuple[int, int]:
    mark: Any = node.start_mark
    return mark.line + 1, mark.column + 1


def _check_size(text: str) -> None:
    """PyYAML composes recursively, and all at once; its events come one by one."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > MOST_NODES:
            raise _TooMuch(event, f"more than {MOST_NODES} values; write fewer")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise _TooMuch(event, f"nested more than {MOST_DEPTH} deep; write it flatter")


def _convert(node: yaml.Node, path: Path, marked: Marked, inside: tuple[yaml.Node, ...]) -> object:
    marked.nodes += 1
    if node in inside:
        raise _TooMuch(node, "an alias holds itself; write the value out")
    if marked.nodes > MOST_NODES:
        raise _TooMuch(node, f"more than {MOST_NODES} values with aliases followed; write fewer")
    marked.places[path] = _place(node)
    match node:
        case yaml.ScalarNode():
            return _scalar(node, marked)
        case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
            return [_convert(item, (*path, i), marked, (*inside, node)) for i, item in enumerate(node.value)]
        case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
            return _mapping(node, path, marked, (*inside, node))
        case _:
            marked.faults.append(Fault(*_place(node), f'tag "{node.tag}" has no meaning here; remove it'))
            return None


def _mapping(node: yaml.MappingNode, path: Path, marked: Marked, inside: tuple[yaml.Node, ...]) -> dict[str, object]:
    data: dict[str, object] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            marked.faults.append(Fault(*_place(key_node), "a key is a list or mapping; write a word"))
            continue
        key = str(_scalar(key_node, marked))
        if key in data:
            first = marked.keys[*path, key][0]
            marked.faults.append(Fault(*_place(key_node), f'key "{key}" stands on line {first} already; write it once'))
            continue
        marked.keys[*path, key] = _place(key_node)
        data[key] = _convert(value_node, (*path, key), marked, inside)
    return data


def _scalar(node: yaml.ScalarNode, marked: Marked) -> object:
    text: str = node.value
    if _SURROGATE.search(text):
        marked.faults.append(Fault(*_place(node), "half a surrogate pair is no character; write the character"))
        return ascii(text)
    match node.tag.removeprefix(_TAG):
        case _ if node.tag in _AS_TEXT:
            return text
        case "null":
            return None
        case "bool" if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "bool":
            fault = f'{text} without quotes is a truth value in YAML 1.1; write "{text}"'
        case "int" if _DECIMAL.fullmatch(text):
            return int(text)
        case "int" if _LONG.fullmatch(text):
            fault = f"{text} has more than 18 digits; write a smaller number"
        case "int":
            fault = f'{text} is no decimal number (YAML 1.1 has base 2, 8, 16, 60); write decimal, or "{text}" for text'
        case "float" if ":" not in text:
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        case "float":
            fault = f'{text} is a number of base 60 in YAML 1.1; write decimal, or "{text}" for text'
        case _:
            fault = f'tag "{node.tag}" has no meaning here; remove it'
    marked.faults.append(Fault(*_place(node), fault))
    return text
