"""`python -m kaudit_probes.listing`: the listed engines and what of them is installed here, as JSON lines on stdout.

With names, those are tried instead, one after another: a process that is told none imports none.
"""

import os
import sys

import msgspec

from kaudit.engines import Installed, Tried
from kaudit.errors import UserError
from kaudit_probes import engines


def main(names: list[str]) -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    if not names:
        for name, listed in engines.ENGINES.items():
            installed = Installed(name, listed.package, listed.version(), listed.get)
            replies.write(msgspec.json.encode(installed) + b"\n")
    for name in names:
        tried = Tried(name, trouble(name))
        replies.write(msgspec.json.encode(tried) + b"\n")
        replies.flush()
        if tried.trouble:  # what an import that failed has left behind is no place to try the next
            break


def trouble(name: str) -> str:
    """Why a sweep of that engine cannot begin, in the sweep's words; empty where it can, given a device."""
    try:
        engines.require_torch()
        kind = engines.load(name)
        if engines.selects(kind):
            kind((9, 0))  # it runs nothing, and any GPU will do
        elif engines.requires(kind):
            kind.require()
    except UserError as error:
        return str(error).removeprefix(f"--engine {name}: ")
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
