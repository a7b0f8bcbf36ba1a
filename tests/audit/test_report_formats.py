"""The formats from end to end: what the command writes, where, and how it ends."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from reports_for_tests import GOLDEN, gated, golden
from tables_for_tests import CELL, ran, table

from golden import loss
from golden.loss import CELLS, CHANGED, LOST, TOLD_AGAIN
from kaudit.expect import Miss
from kaudit.report.formats import Format, lines
from kaudit.terminal import printable

ROOT = Path(__file__).parents[2]
BEFORE, AFTER = GOLDEN / "decode-h200.jsonl", GOLDEN / "decode-h200-silent.jsonl"


def kaudit(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kaudit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=60)


@pytest.mark.parametrize("form", Format)
def test_each_format_goes_to_stdout_or_to_a_file_and_the_words_to_stderr(form: Format, tmp_path: Path) -> None:
    output = tmp_path / "report"
    told = kaudit("gate", BEFORE, AFTER, "--format", form, PYTHONUTF8="1")
    saved = kaudit("gate", BEFORE, AFTER, "--format", form, "--output", output)
    assert (told.returncode, saved.returncode, saved.stdout) == (1, 1, "")
    assert output.read_text("utf-8") == told.stdout
    assert told.stderr.endswith(f"gate failed: {LOST} silent_fallback; 0 waived, {TOLD_AGAIN} tolerated\n")


@pytest.mark.parametrize("form", Format)
def test_a_diff_of_equal_tables_passes_in_every_format(form: Format) -> None:
    told = kaudit("diff", BEFORE, BEFORE, "--format", form)
    assert (told.returncode, told.stderr) == (0, "nothing changed\n")


def test_the_summary_for_github_is_added_to_the_job_s_page(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("what other steps said\n")
    assert kaudit("gate", BEFORE, AFTER, "--format", "github", GITHUB_STEP_SUMMARY=str(page)).returncode == 1
    summary = [printable(line) for line in lines(golden(), Format.markdown)]
    assert page.read_text("utf-8").splitlines() == ["what other steps said", *summary]


def test_json_has_the_whole_verdict() -> None:
    whole = json.loads("\n".join(lines(golden(), Format.json_)))
    assert (whole["passed"], len(whole["changes"]), whole["unmet"]) == (False, CHANGED, [])
    assert {change["judgement"] for change in whole["changes"]} == {"failing", "tolerated"}
    (rule, *_) = whole["rules"]["silent_fallback"]
    assert rule["of_moved"] == LOST
    assert rule["of_others"] == CELLS - LOST
    assert rule["moved"] > LOST / 2 > rule["others"]
    assert whole["after"]["revision"] == loss.AFTER.header.stamp.revision


def test_an_expectation_that_is_not_met_fails_the_gate_in_words_too() -> None:
    one = table(ran("flash"))
    saw = "attention: expected path split, saw path flash in 1 launch"
    missed = (
        Miss("", "stale: no cell that was run has phase=mixed"),
        Miss(CELL, saw),
        Miss(CELL.replace("b8", "b9"), saw),
    )
    report = gated(one, one, unmet=missed, most=1)
    assert report.passed is False
    assert list(lines(report, Format.text)) == [
        "not met: 3 expectations (what the matrix's expect: rules ask for)",
        "  attention: expected path split, saw path flash in 1 launch (2 cells)",
        f"    {CELL}",
        "  and 2 more",
        "",
    ]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--format", "yaml"], "--format"),
        (["--output", "nowhere/at/all"], "nowhere/at is not a folder that can be written"),
        (["--output", ""], ".: Is a directory"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_2(arguments: list[str], fault: str) -> None:
    told = kaudit("diff", BEFORE, BEFORE, *arguments)
    (line,) = told.stderr.splitlines()
    assert (told.returncode, told.stdout) == (2, "")
    assert line.startswith("error: ")
    assert fault in line


def test_a_device_is_written_to_and_not_replaced() -> None:
    assert kaudit("diff", BEFORE, BEFORE, "--output", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_the_docs_list_every_format_and_the_hook_that_there_is() -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    listed, _, _ = page.partition("\n## ")
    assert re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE) == list(Format)
    workflow, (repository,) = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert workflow["jobs"]["gate"]["steps"]
    ids = [hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())]
    assert [hook["id"] for hook in repository["hooks"]] == ids


def test_the_workflow_in_the_docs_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    commands = re.findall(r"run: (kaudit gate .*)", page)
    (tmp_path / "tables").mkdir()
    (tmp_path / "before.jsonl").symlink_to(BEFORE)
    (tmp_path / "tables" / "h200.jsonl").symlink_to(AFTER)
    (tmp_path / "waivers.yaml").write_text("[]\n")
    program = f'cd "{tmp_path}"; kaudit() {{ "{sys.executable}" -m kaudit "$@"; }}; '
    codes = [
        subprocess.run(["bash", "-c", program + command], capture_output=True, env={}).returncode
        for command in commands
    ]
    assert codes == [1, 0]
    assert json.loads((tmp_path / "kaudit.sarif").read_text())["version"] == "2.1.0"
