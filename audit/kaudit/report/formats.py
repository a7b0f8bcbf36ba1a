"""The formats of a diff or a gate, and where each goes."""

import os
from collections.abc import Callable, Iterable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kaudit.terminal import append, data, save

if TYPE_CHECKING:
    from kaudit.report.judged import Report


class Format(StrEnum):
    """A value of --format; its name is that of the module that writes it."""

    text = "text"
    github = "github"
    junit = "junit"
    sarif = "sarif"
    json_ = "json"
    markdown = "markdown"
    prometheus = "prometheus"


def lines(report: "Report", form: Format) -> Iterable[str]:
    # Only the format that is asked for is imported.
    render: Callable[[Report], Iterable[str]] = import_module(f"kaudit.report.{form.name}").render
    return render(report)


def deliver(report: "Report", form: Format, output: Path | None) -> None:
    """To `output`, else to stdout; for GitHub a summary in Markdown goes to the job's page, too.

    Raises UserError where a file cannot be written.
    """
    if output is None:
        data(lines(report, form))
    else:
        save(output, lines(report, form))
    if form is Format.github and (page := os.environ.get("GITHUB_STEP_SUMMARY")):
        append(Path(page), lines(report, Format.markdown))
