"""Strategies: what people and strangers write where something else is expected."""

import re
from typing import Any

from hypothesis import strategies as st

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "\x1b[2J\x1b]0;owned\x07",
    "\n::error::forged\n::add-mask::x",
    "%0A::warning::x",
    "]]></failure><testcase name='x'/>",
    "\r\n\x85\u2028\u2029",
    "{{ 7 * 7 }}",
    "=cmd|' /C calc'!A0",
    "\ud800",
    "\ufffe\x00",
    "a" * 5000,
)

words = st.one_of(st.text(max_size=12), st.sampled_from(HOSTILE))

numbers = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, 10**9, 10**18, 10**40]),
    st.floats(),
)

scalars = st.one_of(st.none(), st.booleans(), numbers, words)

values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)

# fmt: off
YAML_BITS = (
    "", "~", "null", "no", "on", "yes", "1:30", "0x1F", "0o7", "1_000", "1e999", ".inf", "-.nan", "2026-12-31", "=",
    "<<",
    "99999999999999999999999", "-1", "0", "1000000000", "3.5", "true", "[]", "{}", "[[]]", "{a: }", "- ", ": ",
    "? ", "# ",
    "*a", "&a", "&a [*a]", "<<: *a", "!!python/object/apply:os.system [id]", "!!binary x", "!!set {a}", "!x y",
    "%YAML 1.9",
    "[" * 60, "{a: " * 40, "'", '"', '"\\ud800"', '"\\UFFFFFFFF"', "|", ">", "---", "...", "\t", "\x00", "\x1b[2J",
    "\ufeff",
    "paged0", "paged1000000000", "window999999999", "h999999999x1x1", "h8x3x64", "b999999999q1k1", "b1q9k1skew",
    "page-99",
    "9*kv_len", "max+999999999", "neox+yarn@999999999", "full", "cover: 3", "max_len: 999999999", "*/paged16/*",
    "[!a-", "a" * 3000,
)
# fmt: on

_TOKEN = re.compile(r"[\w.*+/@-]+")


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    """One of the texts with some lines and tokens lost, doubled, swapped, moved or replaced."""
    lines = draw(st.sampled_from(texts)).split("\n")
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "double", "swap", "indent", "token", "token", "token", "insert", "cut"])):
            case "drop" if len(lines) > 1:
                del lines[place]
            case "double":
                lines.insert(place, lines[place])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[place], lines[other] = lines[other], lines[place]
            case "indent":
                lines[place] = draw(st.sampled_from(["  ", "\t", "- "])) + lines[place]
            case "insert":
                at = draw(st.integers(0, len(lines[place])))
                lines[place] = lines[place][:at] + draw(st.sampled_from(YAML_BITS) | words) + lines[place][at:]
            case "cut":
                lines[place] = lines[place][: draw(st.integers(0, len(lines[place])))]
            case _:
                found = list(_TOKEN.finditer(lines[place]))
                if found:
                    token = draw(st.sampled_from(found))
                    new = draw(st.sampled_from(YAML_BITS) | words)
                    lines[place] = lines[place][: token.start()] + new + lines[place][token.end() :]
    return "\n".join(lines)


@st.composite
def with_changes(draw: st.DrawFn, document: Any) -> Any:
    """A JSON document of which some values, at any depth, are others, or gone."""
    changed = document
    for _ in range(draw(st.integers(1, 3))):
        changed = _changed(draw, changed)
    return changed


def _changed(draw: st.DrawFn, node: Any) -> Any:
    match node:
        case dict() if node and draw(st.integers(0, 7)):
            key = draw(st.sampled_from(sorted(node)))
            rest = {name: inner for name, inner in node.items() if name != key}
            if draw(st.integers(0, 9)) == 0:
                return rest
            if draw(st.integers(0, 14)) == 0:
                return rest | {draw(words): node[key]}
            return node | {key: _changed(draw, node[key])}
        case list() if node and draw(st.integers(0, 7)):
            place = draw(st.integers(0, len(node) - 1))
            if draw(st.integers(0, 9)) == 0:
                return node[:place] + node[place + 1 :]
            if draw(st.integers(0, 9)) == 0:
                return [*node, node[place]]
            return [*node[:place], _changed(draw, node[place]), *node[place + 1 :]]
        case str() if draw(st.booleans()):
            return draw(words)
        case int() | float() if draw(st.booleans()):
            return draw(numbers)
    return draw(values)


def in_a_file(text: str) -> bytes:
    """As bytes: half of a surrogate pair becomes what a careless writer makes of it."""
    return text.encode("utf-8", "surrogatepass")
