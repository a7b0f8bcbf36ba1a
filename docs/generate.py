"""Writes the generated parts of the docs anew: `make docs`.

A part stands between `<!-- generated: WHAT -->` and `<!-- end -->`. WHAT is a key of PARTS, or a kaudit command line:
the part is then that line and what it prints, run in the root of the repository.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import typer
from typer.testing import CliRunner

from kaudit.cell import Cell
from kaudit.cli import app
from kaudit.glossary import entries
from kaudit.matrix.rules import AXES_OF
from kaudit.matrix.schema import DEFAULT_SHAPES, AxesFile
from kaudit.policy import DEFAULT_FAIL_ON
from kaudit.report.columns import COLUMNS, DEFAULT
from kaudit_probes.engines import ENGINES

DOCS = Path(__file__).parent
PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(?=<!-- end -->)", re.DOTALL)
AN_ID = "decode/bf16/kv-bf16/h32x8x128/paged16/causal/neox/plain/b8q1k4096"


def regenerated(page: str) -> str:
    """The page with each of its generated parts as it is today."""
    return PART.sub(lambda part: f"{part[1]}{_part(part[2])}\n", page)


def pages() -> list[Path]:
    return sorted(DOCS.glob("*.md"))


def _part(what: str) -> str:
    return "\n".join(PARTS[what]() if what in PARTS else _fenced([f"$ {what}", *_printed(what)]))


def _printed(command: str) -> list[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-euo", "pipefail", "-c", command]
    ran = subprocess.run(shell, cwd=DOCS.parent, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.rstrip().splitlines()


def _fenced(lines: Iterable[str]) -> Iterator[str]:
    yield from ("```text", *lines, "```")


def _table(*rows: Sequence[str]) -> Iterator[str]:
    heading, *rest = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    yield from (f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *rest))


def _code(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _help() -> Iterator[str]:
    yield from _fenced(_help_of(()))
    for path in _commands((), typer.main.get_command(app)):
        yield from ("", f"## {' '.join(('kaudit', *path))}", "", *_fenced(_help_of(path)))


def _commands(path: tuple[str, ...], command: object) -> Iterator[tuple[str, ...]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield (*path, name)
        yield from _commands((*path, name), inner)


def _help_of(path: tuple[str, ...]) -> list[str]:
    shown = CliRunner().invoke(app, [*path, "--help"], prog_name="kaudit", env={"COLUMNS": "80"})
    return [line.rstrip() for line in shown.stdout.strip().splitlines()]


def _explained(what: str) -> Iterator[str]:
    chosen = [(f"`{name}`", entry.meaning, entry.decided, entry.do) for name, entry in entries() if entry.what == what]
    return _table((what, "means", "decided", "to do"), *chosen)


def _kinds() -> Iterator[str]:
    chosen = [
        (f"`{name}`", "fails" if name in DEFAULT_FAIL_ON else "", entry.meaning, entry.decided, entry.do)
        for name, entry in entries()
        if entry.what == "kind of change"
    ]
    return _table(("kind, worst first", "by default", "means", "decided", "to do"), *chosen)


def _engines() -> Iterator[str]:
    rows = [(f"`{name}`", f"`{listed.package}`", f"`{listed.get}`") for name, listed in ENGINES.items()]
    return _table(("engine", "audits", "get it"), *rows)


def _defaults() -> Iterator[str]:
    """Of each axis of a matrix file, the value that it has where the file leaves it out."""
    shapes = ", ".join(f"`{shape}` in {phase}" for phase, shape in DEFAULT_SHAPES.items())
    axes = AxesFile().read()
    firsts = {axis: getattr(axes, axis)[0] for axis in AxesFile.model_fields if axis != "shape"}
    rows = [(f"`{axis}`", f"`{value or 'plain'}`") for axis, value in firsts.items()]
    return _table(("axis", "where the file leaves it out"), *rows, ("`shape`", shapes))


PARTS: dict[str, Callable[[], Iterable[str]]] = {
    "help": _help,
    "kinds": _kinds,
    "outcomes": lambda: _explained("outcome"),
    "findings": lambda: _explained("finding"),
    "words": lambda: _explained("word"),
    "defaults": _defaults,
    "columns": lambda: [f"{_code(COLUMNS)}; by default {_code(DEFAULT)}"],
    "axes": lambda: [_code(Cell.parse(AN_ID).axes())],
    "keys": lambda: [_code(AXES_OF)],
    "engines": _engines,
}


if __name__ == "__main__":
    for path in pages():
        path.write_text(regenerated(path.read_text()))
