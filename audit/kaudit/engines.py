"""The listed engines, as the environment of a Python has them. They are listed there and imported nowhere."""

import subprocess
from typing import TypeVar

import msgspec
from msgspec import Struct

from kaudit.errors import UserError, told_in

ANSWER_LIMIT = 60.0
"""Seconds: torch, or a listing that imports no engine, from a cold network disk takes its time."""

_Answer = TypeVar("_Answer")


class Installed(Struct, frozen=True):
    """`version` of the audited package is empty where it is not installed; `get` is how to get it."""

    name: str
    package: str
    version: str
    get: str


@told_in("docs/engines.md")
def installed(python: str) -> list[str]:
    """A line per engine. Raises UserError where that Python has no kaudit."""
    return [_line(engine) for engine in answers(python, "list its engines", Installed, "kaudit_probes.listing")]


def answers(python: str, what: str, kind: type[_Answer], module: str, *arguments: str) -> list[_Answer]:
    """What a module of the probe prints, one `kind` a line, one at least. `what` it is asked to do, in words.

    Raises UserError where that Python does not answer.
    """
    command = [python, "-P", "-m", module, *arguments]
    try:
        printed = subprocess.run(command, capture_output=True, timeout=ANSWER_LIMIT, check=True).stdout
        if found := [msgspec.json.decode(line, type=kind) for line in printed.splitlines()]:
            return found
        fault = "it printed nothing"
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit {error.returncode}"]
        fault = said[-1]
    except (OSError, subprocess.SubprocessError) as error:
        fault = str(error)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        fault = "it printed something else"
    raise UserError(f"--python {python}: cannot {what}: {fault}; name a Python that has kaudit")


def _line(engine: Installed) -> str:
    state = f"{engine.package} {engine.version}" if engine.version else f"not installed: {engine.get}"
    return f"{engine.name:<24}{state}"
