"""`kaudit doctor`: can kaudit see which kernels run, here?"""

import sys
from typing import Annotated

import typer

from kaudit.commands.options import Python
from kaudit.errors import UserError, told_in
from kaudit.terminal import data, words


@told_in("docs/capture.md")
def doctor(
    python: Python = sys.executable,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Say whether kaudit can see kernels here, and what to do if not.

    A trial records launches that it knows: that is the evidence. The other checks are hints at what to mend. Exit
    codes: 0 the trial saw all and nothing is at fault, 2 mend what stands after "do:".
    """
    from kaudit.doctor import blind_by, examine, lines, summary

    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f'--device: "{device}" is not one of auto, cpu, cuda; write one of them')
    words(["looking around, then trying the profiler (some seconds)"])
    checked = examine(python, device)
    data(lines(checked))
    if names := blind_by(checked):
        raise UserError(f'kaudit is blind here, by: {", ".join(names)}; mend what stands after "do:", then ask again')
    words([f"kaudit can see here: {summary(checked)}"])
