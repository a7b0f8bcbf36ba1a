"""The listed engines, as the environment of a Python has them. They are listed there and imported nowhere."""

import subprocess

import msgspec
from msgspec import Struct

from kaudit.errors import UserError, told_in

LISTING_LIMIT = 60.0
"""Seconds: the listing imports no engine, yet a cold network disk takes its time."""


class Installed(Struct, frozen=True):
    """`version` of the audited package is empty where it is not installed; `get` is how to get it."""

    name: str
    package: str
    version: str
    get: str


@told_in("docs/engines.md")
def installed(python: str) -> list[str]:
    """A line per engine. Raises UserError where that Python has no kaudit."""
    command = [python, "-P", "-m", "kaudit_probes.listing"]
    try:
        listed = subprocess.run(command, capture_output=True, timeout=LISTING_LIMIT, check=True).stdout
        if lines := [_line(msgspec.json.decode(line, type=Installed)) for line in listed.splitlines()]:
            return lines
        fault = "it printed nothing"
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit {error.returncode}"]
        fault = said[-1]
    except (OSError, subprocess.SubprocessError) as error:
        fault = str(error)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        fault = "it printed something else"
    raise UserError(f"--python {python}: cannot list its engines: {fault}; name a Python that has kaudit")


def _line(engine: Installed) -> str:
    state = f"{engine.package} {engine.version}" if engine.version else f"not installed: {engine.get}"
    return f"{engine.name:<24}{state}"
